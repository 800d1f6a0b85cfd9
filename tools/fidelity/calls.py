"""Single operators: the calls that PyTorch makes of them, on tensors without values.

Each function builds tensors of the sizes it is given on PyTorch's ``meta`` device and calls the
operator; `asked_by` notes what the device would have been given.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from simgpu import cost
from simgpu.host import is_library

from .precision import tf32_allowed
from .workload import Calls


class _Noted(TorchDispatchMode):
    """Within it, the work of every operation is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[cost.Work] = []
        self.names: list[str] = []

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = op(*args, **kwargs)
        self.works.append(cost.work(op, args, kwargs, out))
        self.names.append(op._schema.name.removeprefix("aten::"))
        return out


class Asked(NamedTuple):
    """What an operator gives the device, and what it asks of the host.

    Attributes
    ----------
    works
        Kernel by kernel.
    library
        Whether a library does one of them; see `simgpu.host`.
    views
        Operators without a kernel.
    """

    works: tuple[cost.Work, ...]
    library: bool
    views: int


@lru_cache(maxsize=65_536)
def asked_by(calls: Calls) -> Asked:
    """Return what a call asks of device and host."""
    call = CALLS[calls.name](getattr(torch, calls.dtype), *calls.sizes)
    with torch.no_grad(), tf32_allowed(calls.tf32, calls.tf32), _Noted() as noted:
        call()
    works = tuple(work for work in noted.works if work.unit != "none")
    return Asked(works, any(map(is_library, noted.names)), len(noted.works) - len(works))


Call = Callable[[], object]


def _new(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def _linear(dtype: torch.dtype, batch: int, rows: int, inner: int, outer: int, bias: int) -> Call:
    x, weight = _new(dtype, batch, rows, inner), _new(dtype, outer, inner)
    offset = _new(dtype, outer) if bias else None
    return lambda: F.linear(x, weight, offset)


def _mm(dtype: torch.dtype, m: int, n: int, k: int, left: int = 0, right: int = 0) -> Call:
    """``(m, k) @ (k, n)``; ``left`` and ``right`` say which of them is a transposed view."""
    a = _new(dtype, k, m).t() if left else _new(dtype, m, k)
    b = _new(dtype, n, k).t() if right else _new(dtype, k, n)
    return lambda: torch.mm(a, b)


def _bmm(dtype: torch.dtype, batch: int, m: int, k: int, n: int) -> Call:
    a, b = _new(dtype, batch, m, k), _new(dtype, batch, k, n)
    return lambda: torch.bmm(a, b)


def _conv(
    dtype: torch.dtype, n: int, cin: int, cout: int, k: int, size: int, stride: int, pad: int
) -> Call:
    x, weight = _new(dtype, n, cin, size, size), _new(dtype, cout, cin, k, k)
    return lambda: F.conv2d(x, weight, None, stride, pad)


def _of_one(function: Callable[[Tensor], object]) -> Callable[..., Call]:
    def make(dtype: torch.dtype, *shape: int) -> Call:
        x = _new(dtype, *shape)
        return lambda: function(x)

    return make


def _of_two(function: Callable[[Tensor, Tensor], object]) -> Callable[..., Call]:
    def make(dtype: torch.dtype, *shape: int) -> Call:
        x, y = _new(dtype, *shape), _new(dtype, *shape)
        return lambda: function(x, y)

    return make


def _layer_norm(dtype: torch.dtype, rows: int, width: int, bias: int = 1) -> Call:
    x, weight = _new(dtype, rows, width), _new(dtype, width)
    offset = _new(dtype, width) if bias else None
    return lambda: F.layer_norm(x, (width,), weight, offset)


def _embedding(dtype: torch.dtype, tokens: int, words: int, width: int) -> Call:
    table, index = _new(dtype, words, width), _new(torch.int64, tokens)
    return lambda: F.embedding(index, table)


def _rotate(dtype: torch.dtype, tokens: int, width: int) -> Call:
    """A kernel by rows that reads and writes each element once."""
    x = _new(dtype, tokens, width)
    return lambda: torch.softmax(x, -1)


def _gate(dtype: torch.dtype, tokens: int, width: int) -> Call:
    """A kernel by rows that reads two halves and writes one."""
    x, y = _new(dtype, tokens, width // 2), _new(dtype, tokens, width // 2)
    return lambda: torch.ops.aten._softmax_backward_data(x, y, -1, dtype)


def _attention(
    dtype: torch.dtype, batch: int, heads: int, rows: int, keys: int, width: int, causal: int
) -> Call:
    query = _new(dtype, batch, heads, rows, width)
    key, value = _new(dtype, batch, heads, keys, width), _new(dtype, batch, heads, keys, width)
    fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable
    return lambda: fused(query, key, value, None, 0.0, bool(causal))


CALLS: dict[str, Callable[..., Call]] = {
    "linear": _linear,
    "mm": _mm,
    "bmm": _bmm,
    "conv": _conv,
    "add": _of_two(torch.add),
    "sub": _of_two(torch.sub),
    "mul": _of_two(torch.mul),
    "div": _of_two(torch.div),
    "pow": _of_two(torch.pow),
    "addu": _of_one(lambda x: x + 1.5),
    "subu": _of_one(lambda x: x - 1.5),
    "mulu": _of_one(lambda x: x * 1.5),
    "divu": _of_one(lambda x: x / 1.5),
    "powu": _of_one(lambda x: x**1.5),
    "relu": _of_one(F.relu),
    "tanh": _of_one(torch.tanh),
    "sigmoid": _of_one(torch.sigmoid),
    "silu": _of_one(F.silu),
    "exp": _of_one(torch.exp),
    "gelu": _of_one(F.gelu),
    "softmax": _of_one(lambda x: F.softmax(x, -1)),
    "layer_norm": _layer_norm,
    "embedding": _embedding,
    "rotate": _rotate,
    "gate": _gate,
    "add_two": _of_two(lambda x, y: x + y + x),
    "attention": _attention,
    "fill": _of_one(lambda x: x.fill_(1.5)),
    "copy": _of_two(lambda x, y: x.copy_(y)),
    "sum": _of_one(torch.sum),
    "scale": _of_two(lambda x, y: torch.mul(y, 1.5, out=x)),
    "triad": _of_two(lambda x, y: x.add_(y, alpha=1.5)),
    "dot": _of_two(torch.dot),
}
"""What can be called, by name; each takes a dtype and sizes and returns the call."""
