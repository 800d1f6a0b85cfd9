"""The work of an operation: its FLOPs, its matrix products (GEMMs), and the bytes it reads and writes.

`latency` computes seconds from it. Matrix products, convolutions and attention have their FLOPs from
``torch.utils.flop_counter``, and the shapes of the GEMMs that a GPU computes for them; all other
operations count one FLOP per element and are bound by their bytes.

What this leaves out: kernels that one operation is made of (one operation is one kernel), and what a
CPU and a GPU do differently in the same operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from .products import (
    Gemm,
    bytes_of,
    channels_first_work,
    gemms_of,
    is_channels_last,
    is_unaligned,
)

aten = torch.ops.aten


class Work(NamedTuple):
    """The work of one operation.

    ``unit`` is the hardware that computes: ``"fp32"`` and ``"fp64"`` (ordinary cores), ``"tf32"``,
    ``"fp16"`` and ``"bf16"`` (tensor cores), or ``"none"`` where no kernel runs. ``kind`` is ``"stream"``
    (elementwise), ``"strided"`` (elementwise, of tensors with different strides), ``"softmax"``, ``"reduce"``
    (sums, norms, pooling), ``"gather"`` (indexing), ``"depthwise"`` (a depthwise convolution),
    ``"product"``, ``"convolution"``, ``"pointwise"`` (a 1 x 1 convolution) or ``"attention"``.
    """

    flops: float  # floating-point operations; a multiplication with an addition is two
    bytes: float  # read and written
    unit: str
    kind: str = "stream"
    products: tuple[Gemm, ...] = ()  # the matrix products that it is made of
    # Of a convolution of NCHW tensors on tensor cores one of two ways: a product for each image, or
    # layout conversions, each as (`products.layout_tiles`, bytes read and written) of a tensor.
    per_image: tuple[Gemm, ...] = ()
    conversions: tuple[tuple[int, int], ...] = ()
    unaligned: bool = False  # rows begin where tensor cores cannot load several elements at once
    blocks: int = 0  # thread blocks where they may be too few for the processors, else 0
    guessed: bool = False  # the FLOP formula failed: bound by its bytes

    @property
    def matrix(self) -> bool:
        """Whether it is a matrix product, a convolution or attention."""
        return self.kind in ("product", "convolution", "pointwise", "attention")


NOTHING = Work(0, 0, "none")
"""Views, uninitialised memory and the like: no kernel runs, whatever the sizes."""

_LAUNCH_ONLY = Work(0, 0, "fp32", guessed=True)
"""The cost is not known: a kernel with nothing but its fixed start."""

_EMPTY = Work(0, 0, "none")  # no kernel runs, because the tensors have no elements


def work(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    """Return the work of an operation; if that fails, `_LAUNCH_ONLY`. Never raises.

    Parameters
    ----------
    op
        The ``OpOverload``, such as ``torch.ops.aten.mm.default``.
    args, kwargs, out
        Its arguments and its result, with plain CPU or meta tensors.
    """
    if op in _NO_WORK:
        return NOTHING
    try:
        return _work(op, args, kwargs, out)
    except Exception:  # noqa: BLE001  (the operation was right: its cost never stops it)
        return _LAUNCH_ONLY


def _work(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Work:
    """Return the work of an operation, from the cache if its signature is known."""
    is_same_tensor = len(args) > 1 and args[0] is args[1]
    key = (op, is_same_tensor, *map(_signature, args))
    if kwargs:
        key += tuple((name, _signature(value)) for name, value in kwargs.items())
    entry = _cache.get(key)
    if entry is None:
        entry = _analyse(op, args, kwargs, out)
        if entry[0] is NOTHING:
            _NO_WORK.add(op)
        elif torch.Tag.dynamic_output_shape not in op.tags and not entry[0].guessed:
            if len(_cache) >= _CACHE_SIZE:
                _cache.clear()
            _cache[key] = entry
    without_tf32, with_tf32, is_tf32_allowed = entry
    return with_tf32 if is_tf32_allowed is not None and is_tf32_allowed() else without_tf32


# An operation's work depends only on the shapes, strides and dtypes of its tensors and on its integer
# arguments, so it is cached by them. A float (a learning rate, say) changes often and has no influence.
_Entry = tuple[Work, Work, "Callable[[], bool] | None"]  # plain, with TF32, whether TF32 is allowed
_cache: dict[Any, _Entry] = {}
_CACHE_SIZE = 8192


def _signature(x: Any) -> Any:
    """Return the hashable part of an argument that decides the work; for a float only its type."""
    kind = type(x)
    if kind is Tensor:
        return (x.shape, x.stride(), x.dtype)
    if kind in _KEPT_TYPES:
        return x
    if kind is list or kind is tuple:
        return tuple(x) if x and type(x[0]) in _INTEGERS else tuple(map(_signature, x))
    return (x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else kind


_INTEGERS = frozenset((int, bool))  # a list that starts with one holds nothing else
_KEPT_TYPES = _INTEGERS | {str, type(None), torch.dtype}


def _analyse(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> _Entry:
    """Return the work of an operation in three parts: without TF32, with TF32, and whether TF32 is allowed.

    The last is a function to call at each operation, or None where TF32 makes no difference.
    """
    packet = op.overloadpacket
    if packet in _NO_KERNEL or _is_view(op):
        return NOTHING, NOTHING, None
    read, written = _inputs(op, args, kwargs), list(_tensors(out))
    nbytes = _bytes_moved(packet, read, written)
    if packet in _BATCH_NORMS and args[5] is False:  # in evaluation: nothing is summed
        packet, nbytes = aten.mul, bytes_of(read) + bytes_of(written)
    if not nbytes:
        return _EMPTY, _EMPTY, None
    tensors = [*read, *written]
    unit = "fp64" if any(t.dtype is torch.float64 for t in tensors) else "fp32"
    kind = _kind(packet)
    if kind == "stream" and packet is op.overloadpacket and not _same_layout([*args, *written]):
        kind = "strided"
    counted = written if kind == "gather" else tensors  # of a table only the rows looked up
    plain = Work(max((t.numel() for t in counted), default=0), nbytes, unit, kind)
    if packet in _BY_CHANNELS and args[0].dim() > 2 and not is_channels_last(args[0]):
        images = [t for t in read if t.shape == args[0].shape]  # each is read twice
        plain = plain._replace(flops=2 * sum(t.numel() for t in images), blocks=args[0].shape[1])
    formula = _formula(packet)
    if formula is None:
        return plain, plain, None
    try:
        flops = formula(*args, **kwargs, out_val=out)
        kind, products = gemms_of(str(packet), args, out)
        per_image, conversions = channels_first_work(str(packet), kind, products, args)
    except Exception:  # noqa: BLE001  (whatever it is: the operation itself was right)
        plain = plain._replace(guessed=True)
        return plain, plain, None
    dtype = next((t.dtype for t in read if t.is_floating_point()), torch.float32)
    unit = UNITS.get(dtype, "fp32")
    elements_per_load = 4 if unit == "fp32" else 2  # elements that one load of a tensor core brings
    unaligned = kind == "product" and is_unaligned(tensors, elements_per_load)
    plain = Work(flops, nbytes, unit, kind, products, per_image, conversions, unaligned)
    if plain.unit != "fp32":
        return plain, plain, None
    return plain, plain._replace(unit="tf32"), conv_tf32 if kind in _CONVOLUTION_KINDS else _matmul_tf32


def _same_layout(values: Iterable[Any]) -> bool:
    """Return whether all tensors have one shape and one dense layout; 0-dim tensors are ignored."""
    layouts = {(x.shape, x.stride()) for x in values if isinstance(x, Tensor) and x.dim()}
    return len(layouts) < 2 and all(
        math.prod(shape) == 1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
        for shape, steps in layouts
    )


_CONVOLUTION_KINDS = ("convolution", "pointwise", "depthwise")


UNITS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}


# --- Which operations run no kernel


def _packets(names: str) -> set[Any]:
    """Return the set of ``torch.ops.aten`` packets with these names, as far as this release has them."""
    return {getattr(aten, name) for name in names.split() if hasattr(aten, name)}


_NO_WORK: set[Any] = set()  # overloads found to do nothing
_NO_KERNEL = _packets(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_ set_ "
    "_unsafe_view as_strided_ transpose_ t_ squeeze_ unsqueeze_ swapaxes_ swapdims_ detach_ "
    "_local_scalar_dense is_same_size sym_size sym_stride sym_numel sym_storage_offset"
)


def _is_view(op: Any) -> bool:
    """Return whether an operator returns views only."""
    returns = op._schema.returns
    return bool(returns) and all(r.alias_info and not r.alias_info.is_write for r in returns)


# --- Bytes


def _tensors(x: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested lists and tuples."""
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


def _inputs(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Return the tensors that an operation reads, each once; ``out=`` and overwritten ones are left out."""
    start = 1 if op.overloadpacket in _OVERWRITES else 0
    outs = {a.name for a in op._schema.arguments if a.is_out}
    named = [value for name, value in kwargs.items() if name not in outs]
    return list({id(t): t for t in _tensors([*args[start:], *named])}.values())


def _bytes_moved(packet: Any, read: list[Tensor], written: list[Tensor]) -> int:
    """Return how many bytes an operation reads and writes in device memory."""
    if packet in _GATHERS:  # of the first tensor only the elements of the result
        return bytes_of(read[1:]) + 2 * bytes_of(written)
    if packet in _SCATTERS:  # of the first tensor only the changed elements, read and written
        return 3 * bytes_of(read[1:])
    if packet in _READS_TWICE:  # once to compute the statistics, once to apply them
        return 2 * bytes_of(read) + bytes_of(written)
    return bytes_of(read) + bytes_of(written)


_READS_TWICE = _packets(
    "native_batch_norm native_batch_norm_backward _native_batch_norm_legit cudnn_batch_norm "
    "cudnn_batch_norm_backward native_layer_norm_backward _fused_rms_norm_backward"
)

_BATCH_NORMS = _packets("native_batch_norm _native_batch_norm_legit cudnn_batch_norm")

_BY_CHANNELS = _BATCH_NORMS | _packets("native_batch_norm_backward cudnn_batch_norm_backward")

# --- Kinds

_REDUCES = _packets(
    "sum mean var var_mean std std_mean amax amin max min argmax argmin prod any all norm linalg_vector_norm "
    "logsumexp cumsum cumprod sort topk native_layer_norm native_layer_norm_backward _fused_rms_norm "
    "_fused_rms_norm_backward native_batch_norm native_batch_norm_backward cudnn_batch_norm "
    "cudnn_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "native_group_norm native_group_norm_backward max_pool2d_with_indices "
    "max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d "
    "_adaptive_avg_pool2d_backward nll_loss_forward nll_loss_backward"
)


_SOFTMAX = _packets("_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data")


def _kind(packet: Any) -> str:
    """Return the `Work.kind` of an operation that has no FLOP formula."""
    if packet in _GATHERS or packet in _SCATTERS:
        return "gather"
    if packet in _SOFTMAX:
        return "softmax"
    return "reduce" if packet in _REDUCES else "stream"


# --- FLOPs


def _linear(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    """Return the FLOPs of a linear layer."""
    return 2 * x.numel() * weight.shape[0]


def _conv_backward(grad: Any, x: Any, weight: Any, *rest: Any, **out: Any) -> int:
    """Return the FLOPs of a convolution's backward pass that takes no bias sizes."""
    return flop_registry[aten.convolution_backward](grad, x, weight, None, *rest, **out)


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Return the FLOPs of attention: two products, the scores and the weighted sum of the values.

    With grouped queries several heads of queries share a key.
    """
    *batch, rows, width = query.shape
    return 2 * math.prod(batch) * rows * key.shape[-2] * (width + value.shape[-1])


def _attention_backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    """Return the FLOPs of attention's backward pass: five products, one of them the scores recomputed."""
    *batch, rows, width = query.shape
    return 2 * math.prod(batch) * rows * key.shape[-2] * (3 * width + 2 * value.shape[-1])


# Operations that the flop counter of some release does not know, or not with grouped queries.
_EXTRA_FORMULAS: dict[str, Callable[..., int]] = {
    "aten.linear": _linear,
    "aten.convolution_overrideable": lambda *args, **kwargs: flop_registry[aten.convolution](*args, **kwargs),
    "aten.convolution_backward_overrideable": _conv_backward,
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_fused_attention_overrideable": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten._scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
}


def _formula(packet: Any) -> Callable[..., int] | None:
    """Return the function that computes an operator's FLOPs, or None."""
    return _EXTRA_FORMULAS.get(str(packet)) or flop_registry.get(packet)


# --- TF32: read at every call, because a program may switch it at any time

if hasattr(torch.backends.cudnn, "conv"):  # the settings of newer releases

    def _matmul_tf32() -> bool:
        return torch.backends.cuda.matmul.fp32_precision == "tf32"

    def conv_tf32() -> bool:
        """Return whether convolutions, and recurrent networks, may use TF32."""
        return torch.backends.cudnn.conv.fp32_precision == "tf32"

else:

    def _matmul_tf32() -> bool:
        return torch.backends.cuda.matmul.allow_tf32

    def conv_tf32() -> bool:
        """Return whether convolutions, and recurrent networks, may use TF32."""
        return torch.backends.cudnn.allow_tf32
