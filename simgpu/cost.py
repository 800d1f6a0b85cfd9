"""What an operation costs on the device: how much it computes and moves, and so how long it takes.

The model is a roofline. A kernel computes and moves bytes at the same time, so the slower of the
two decides, and every kernel pays a fixed start on top::

    seconds = kernel_floor + max(compute, bytes / (bandwidth * efficiency))

Matrix products, convolutions and attention have their FLOPs from ``torch.utils.flop_counter`` and
run at the rate of their unit (tensor cores or not, by dtype). They need some size to keep the whole
device busy, so the first ``ramp`` seconds of their work run at half the rate. All other operations
count one FLOP an element and are bound by their bytes.

What the model leaves out: caches (a small tensor that was just written is read back faster than
from memory), kernels that one operation is made of (one operation is one kernel), padding to the
tensor cores' sizes, and heat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from .profiles import Profile

aten = torch.ops.aten


class Work(NamedTuple):
    """What one operation does.

    Attributes
    ----------
    flops
        Floating-point operations; a multiplication with an addition is two.
    bytes
        Bytes read and written.
    unit
        What computes: ``"fp32"`` and ``"fp64"`` (ordinary cores), ``"tf32"``, ``"fp16"`` and
        ``"bf16"`` (tensor cores), or ``"none"`` where the device has nothing to do.
    matrix
        Whether it is a matrix product or its like.
    guessed
        Whether its formula failed, so that it stands here as any operation bound by its bytes.
    """

    flops: float
    bytes: float
    unit: str
    matrix: bool = False
    guessed: bool = False


NOTHING = Work(0, 0, "none")
"""Views, uninitialised memory and the like: no kernel runs, whatever the sizes."""

_STARTS = Work(0, 0, "fp32", guessed=True)
"""Its cost could not be worked out: a kernel that starts, and no more."""

_EMPTY = Work(0, 0, "none")  # no kernel runs because this time the tensors have no elements


def work(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    """Return what an operation did; where that cannot be worked out, a kernel that only starts.

    Parameters
    ----------
    op
        The overload, such as ``torch.ops.aten.mm.default``.
    args, kwargs, out
        What it was called with and what it returned, as plain tensors.
    """
    if op in _NO_WORK:
        return NOTHING
    try:
        return _work(op, args, kwargs, out)
    except Exception:  # noqa: BLE001  (the operation was right: its cost never stops it)
        return _STARTS


def _work(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    same = len(args) > 1 and args[0] is args[1]
    key = (op, same, *map(_signature, args))
    if kwargs:
        key += tuple((name, _signature(value)) for name, value in kwargs.items())
    entry = _known.get(key)
    if entry is None:
        entry = _analyse(op, args, kwargs, out)
        if entry[0] is NOTHING:
            _NO_WORK.add(op)
        elif torch.Tag.dynamic_output_shape not in op.tags and not entry[0].guessed:
            if len(_known) >= _MOST:
                _known.clear()
            _known[key] = entry
    plain, tf32, allowed = entry
    return tf32 if allowed is not None and allowed() else plain


def seconds(work: Work, profile: Profile) -> float:
    """Return how long the device takes for it; 0 where there is nothing to do."""
    flops, moved, unit, matrix, _ = work
    if unit == "none":
        return 0.0
    compute = flops / profile.rates[unit]
    if matrix:
        compute += min(compute, profile.ramp)
    return profile.kernel_floor + max(compute, moved / profile.memory_rate)


# An operation's work depends only on the shapes, strides and dtypes of its tensors and on its whole
# numbers, so it is worked out once. A float (a learning rate, say) changes often and alters nothing.
_Entry = tuple[Work, Work, "Callable[[], bool] | None"]  # plain, with TF32, whether TF32 is allowed
_known: dict[Any, _Entry] = {}
_MOST = 8192


def _signature(x: Any) -> Any:
    kind = type(x)
    if kind is Tensor:
        return (x.shape, x.stride(), x.dtype)
    if kind in _AS_IT_IS:
        return x
    if kind is list or kind is tuple:
        return tuple(x) if x and type(x[0]) in _WHOLE else tuple(map(_signature, x))
    return (x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else kind


_WHOLE = frozenset((int, bool))  # a list that starts with one holds nothing else
_AS_IT_IS = _WHOLE | {str, type(None), torch.dtype}


def _analyse(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> _Entry:
    packet = op.overloadpacket
    if packet in _NO_KERNEL or _is_view(op):
        return NOTHING, NOTHING, None
    read, written = _read(op, args, kwargs), list(_tensors(out))
    moved = _moved(packet, read, written)
    if not moved:
        return _EMPTY, _EMPTY, None
    tensors = [*read, *written]
    unit = "fp64" if any(t.dtype is torch.float64 for t in tensors) else "fp32"
    plain = Work(max((t.numel() for t in tensors), default=0), moved, unit)
    formula = _formula(packet)
    if formula is None:
        return plain, plain, None
    try:
        flops = formula(*args, **kwargs, out_val=out)
    except Exception:  # noqa: BLE001  (whatever it is: the operation itself was right)
        plain = plain._replace(guessed=True)
        return plain, plain, None
    dtype = next((t.dtype for t in read if t.is_floating_point()), torch.float32)
    plain = Work(flops, moved, _UNITS.get(dtype, "fp32"), True)
    if plain.unit != "fp32":
        return plain, plain, None
    return plain, plain._replace(unit="tf32"), _conv_tf32 if "conv" in str(packet) else _matmul_tf32


_UNITS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}


# --- Which operations run no kernel


def _packets(names: str) -> set[Any]:
    return {getattr(aten, name) for name in names.split() if hasattr(aten, name)}


_NO_WORK: set[Any] = set()  # overloads found to do nothing
_NO_KERNEL = _packets(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_ set_ "
    "_unsafe_view as_strided_ transpose_ t_ squeeze_ unsqueeze_ swapaxes_ swapdims_ detach_ "
    "_local_scalar_dense is_same_size sym_size sym_stride sym_numel sym_storage_offset"
)


def _is_view(op: Any) -> bool:
    returns = op._schema.returns
    return bool(returns) and all(r.alias_info and not r.alias_info.is_write for r in returns)


# --- How many bytes


def _tensors(x: Any) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for item in x:
            yield from _tensors(item)


_OVERWRITES = _packets(
    "zero_ fill_ copy_ normal_ uniform_ bernoulli_ random_ exponential_ log_normal_ geometric_ cauchy_"
)
_GATHERS = _packets("embedding index_select gather take index")
_SCATTERS = _packets("index_put_ _index_put_impl_ index_add_ index_copy_ scatter_ scatter_add_")


def _read(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that are read, each once; ``out=`` is only written."""
    start = 1 if op.overloadpacket in _OVERWRITES else 0
    outs = {a.name for a in op._schema.arguments if a.is_out}
    named = [value for name, value in kwargs.items() if name not in outs]
    return list({id(t): t for t in _tensors([*args[start:], *named])}.values())


def _moved(packet: Any, read: list[Tensor], written: list[Tensor]) -> int:
    if packet in _GATHERS:  # of the first tensor only what comes out
        return _bytes(read[1:]) + 2 * _bytes(written)
    if packet in _SCATTERS:  # of the first tensor only what is changed, read and written
        return 3 * _bytes(read[1:])
    return _bytes(read) + _bytes(written)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes behind the tensors; an expanded dimension has them once."""
    total = 0
    for t in tensors:
        count = t.element_size()
        for size, stride in zip(t.shape, t.stride(), strict=True):
            if stride or not size:
                count *= size
        total += count
    return total


# --- How many FLOPs


def _linear(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * x.numel() * weight.shape[0]


def _conv_backward(grad: Any, x: Any, weight: Any, *rest: Any, **out: Any) -> int:
    return flop_registry[aten.convolution_backward](grad, x, weight, None, *rest, **out)


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Two products: the scores, and the values they weigh. Groups of queries may share a key."""
    *batch, rows, width = query.shape
    return 2 * math.prod(batch) * rows * key.shape[-2] * (width + value.shape[-1])


def _attention_backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    """Five products: the scores again, the gradients of them, of query, key and value."""
    *batch, rows, width = query.shape
    return 2 * math.prod(batch) * rows * key.shape[-2] * (3 * width + 2 * value.shape[-1])


# Operations that the flop counter of some release does not know, or not with grouped queries.
_MORE: dict[str, Callable[..., int]] = {
    "aten.linear": _linear,
    "aten.convolution_overrideable": lambda *args, **kwargs: flop_registry[aten.convolution](
        *args, **kwargs
    ),
    "aten.convolution_backward_overrideable": _conv_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_fused_attention_overrideable": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten._scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
}


def _formula(packet: Any) -> Callable[..., int] | None:
    return _MORE.get(str(packet)) or flop_registry.get(packet)


# --- TF32: asked at every call, because a program may switch it at any time

if hasattr(torch.backends.cudnn, "conv"):  # the settings that newer releases keep

    def _matmul_tf32() -> bool:
        return torch.backends.cuda.matmul.fp32_precision == "tf32"

    def _conv_tf32() -> bool:
        return torch.backends.cudnn.conv.fp32_precision == "tf32"

else:

    def _matmul_tf32() -> bool:
        return torch.backends.cuda.matmul.allow_tf32

    def _conv_tf32() -> bool:
        return torch.backends.cudnn.allow_tf32
