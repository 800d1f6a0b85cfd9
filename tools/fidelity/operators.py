"""Readers of rows of single operators, bandwidths, copies and collectives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from simgpu import cost
from simgpu.cluster.collectives import KINDS
from simgpu.host import is_library

from .table import Row, Unsupported, dtype_of, field, match
from .work import Calls, Collective, Copy, Reading, tf32_allowed

# --- The calls, on tensors without values


class _WorkRecorder(TorchDispatchMode):
    """Within this mode, the modelled work and the name of each operator called are appended to its lists."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[cost.Work] = []
        self.names: list[str] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = op(*args, **(kwargs or {}))
        self.works.append(cost.work(op, args, kwargs or {}, out))
        self.names.append(op._schema.name.removeprefix("aten::"))
        return out


class CallKernels(NamedTuple):
    """A call's kernels, whether a library provides one of them, and the number of operators without one."""

    works: tuple[cost.Work, ...]
    library: bool
    views: int


@lru_cache(maxsize=65_536)
def kernels_of(calls: Calls) -> CallKernels:
    """Return the kernels that a call launches; it runs on meta tensors, and the result is cached."""
    dtype, (call, arguments) = getattr(torch, calls.dtype), CALLS[calls.name]
    given = [
        torch.empty(a, dtype=dtype, device="meta") if isinstance(a, tuple) else a
        for a in arguments(*calls.sizes)
    ]
    with torch.no_grad(), tf32_allowed(calls.tf32, calls.tf32), _WorkRecorder() as recorder:
        call(*given)
    works = tuple(work for work in recorder.works if work.unit != "none")
    return CallKernels(works, any(map(is_library, recorder.names)), len(recorder.works) - len(works))


def _softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last dimension."""
    return F.softmax(x, -1)


_OF_ONE = {name: getattr(torch, name) for name in ("relu", "tanh", "sigmoid", "exp", "sum")}
_OF_ONE |= {"silu": F.silu, "gelu": F.gelu, "softmax": _softmax, "fill": lambda x: x.fill_(1.5)}
_OF_ONE |= {"addu": lambda x: x + 1.5, "subu": lambda x: x - 1.5, "mulu": lambda x: x * 1.5}
_OF_ONE |= {"divu": lambda x: x / 1.5, "powu": lambda x: x**1.5}
_OF_ONE |= {"rotate": _softmax}  # stands for a kernel by rows that reads and writes each element once
_OF_TWO = {name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "pow", "dot")}
_OF_TWO |= {"copy": torch.Tensor.copy_, "scale": lambda x, y: torch.mul(y, 1.5, out=x)}
_OF_TWO |= {"add_two": lambda x, y: x + y + x, "triad": lambda x, y: x.add_(y, alpha=1.5)}
_fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable

CALLS: dict[str, tuple[Callable[..., object], Callable[..., list[Any]]]] = {
    **{name: (call, lambda *shape: [shape]) for name, call in _OF_ONE.items()},
    **{name: (call, lambda *shape: [shape, shape]) for name, call in _OF_TWO.items()},
    "linear": (F.linear, lambda b, m, k, n, bias: [(b, m, k), (n, k), (n,) if bias else None]),
    "mm": (torch.mm, lambda m, n, k: [(m, k), (k, n)]),
    "bmm": (torch.bmm, lambda b, m, k, n: [(b, m, k), (b, k, n)]),
    "conv": (F.conv2d, lambda n, i, o, k, x, s, p: [(n, i, x, x), (o, i, k, k), None, s, p]),
    "layer_norm": (F.layer_norm, lambda m, n, bias=1: [(m, n), [n], (n,), (n,) if bias else None]),
    "embedding": (
        F.embedding,
        lambda m, words, n: [torch.empty(m, dtype=torch.int64, device="meta"), (words, n)],
    ),
    "gate": (  # stands for a kernel by rows that reads two halves and writes one
        lambda x, y: torch.ops.aten._softmax_backward_data(x, y, -1, x.dtype),
        lambda m, n: [(m, n // 2), (m, n // 2)],
    ),
    "attention": (
        _fused,
        lambda b, h, m, n, k, causal: [(b, h, m, k), *[(b, h, n, k)] * 2, None, 0.0, bool(causal)],
    ),
}
"""For each name, the function and its arguments as a function of sizes; tuples are shapes of tensors."""

_KINDS = {"linear": "product", "mm": "product", "bmm": "product", "conv": "convolution"}
_KINDS |= {"layer_norm": "norm", "embedding": "gather", "sum": "reduction", "dot": "reduction"}
_KINDS |= {"softmax": "softmax", "attention": "attention"}


def _call(row: Row, name: str, *sizes: int, kind: str = "", **more: Any) -> Reading:
    """Return the reading of a row of one operator; ``more`` are fields of `Reading`, and ``looped``."""
    calls = Calls(name, sizes, dtype_of(row), row.dtype.lower() == "tf32", more.pop("looped", False))
    return Reading(kind or _KINDS.get(name, "elementwise"), calls, **more)


# --- Rows of operators

_EAGER = {"linear": "B M N K", "bmm": "B M N K", "conv": "N Cin Cout k in s p"}
_ELEMENTWISE = {"add", "sub", "mul", "div", "pow", "addu", "subu", "mulu", "divu", "powu"}
_ELEMENTWISE |= {"relu", "tanh", "gelu", "sigmoid", "silu", "exp", "softmax", "layer_norm"}


def eager(row: Row) -> Reading:
    """NeuSight: one float32 call between events on an idle stream, so the time includes the host's work."""
    op = row.workload.removeprefix("op:")
    op = {"ln": "layer_norm"}.get(op, op)
    if op not in _EAGER and op not in _ELEMENTWISE:
        raise Unsupported("the operator is not known")
    # Whether a convolution had a bias is not said; without one it is one kernel.
    bias = (1,) if op == "linear" else ()
    return _call(row, op, *field(row, _EAGER.get(op, "B H")), *bias, host=True)


_VOCABULARY = {"Llama-2": 32_000, "Llama-3": 128_256, "phi-2": 51_200}


def layer(row: Row) -> Reading:
    """Vidur: an operator of a language model's layer on one of ``tp`` cards, profiled, without the host."""
    op = row.workload.removeprefix("op:")
    width, ffn, heads, kv, tokens, tp = field(row, "d ffn heads kv tokens tp")
    gated, head = "gated=True" in row.params, width // heads
    products = {
        "attn_pre_proj": (width, (heads + 2 * kv) * head // tp),
        "attn_post_proj": (width // tp, width),
        "mlp_up_proj": (width, (2 if gated else 1) * ffn // tp),
        "mlp_down_proj": (ffn // tp, width),
    }
    if op in products:  # phi-2 has biases, the Llamas have none
        return _call(row, "linear", 1, tokens, *products[op], int(not gated))
    if op == "emb":
        words = [n for name, n in _VOCABULARY.items() if name in row.params]
        if not words:
            raise Unsupported("the vocabulary of its model is not known")
        return _call(row, "embedding", tokens, words[0] // tp, width)
    if op == "add":
        return _call(row, "add" if gated else "add_two", tokens, width)
    if not gated and op in ("input_layernorm", "mlp_act"):
        norm = op == "input_layernorm"
        return _call(row, "layer_norm" if norm else "gelu", tokens, width if norm else ffn // tp)
    # The inference engine's own kernels, modelled by operators that read and write the same bytes.
    own = {
        "input_layernorm": ("layer_norm", tokens, width, 0),
        "mlp_act": ("gate", tokens, 2 * ffn // tp),
        "attn_rope": ("rotate", tokens, (heads + kv) * head // tp),
    }
    if op in own:
        return _call(row, *own[op], kind="fused kernel")
    raise Unsupported("the operator is not known")


def deepbench(row: Row) -> Reading:
    """DeepBench: ``C = A B`` by columns, which is ``Cᵀ = Bᵀ Aᵀ`` by rows; a transposed side is a view."""
    m, n, k = field(row, "M N K")
    return _call(row, "mm", n, m, k)


def rate_of_product(row: Row) -> Reading:
    """CublasLt and mamf: a matrix product whose FLOP/s were measured."""
    sizes = re.search(r"MxNxK=(\d+)x(\d+)x(\d+)", row.params)
    m, n, k = map(int, sizes.groups()) if sizes else field(row, "m n k")
    return _call(row, "mm", m, n, k, amount=2 * m * n * k)


def wall_clock(row: Row) -> Reading:
    """LLMCompass: the host waits for each eager call, so the time includes the host's work."""
    if row.workload == "matmul":
        return _call(row, "mm", *field(row, "M N K"), host=True)
    if row.workload == "layernorm":
        raise Unsupported("it was compiled")
    sizes = field(row, "M N")
    return _call(row, "softmax", *sizes, host=True, amount=math.prod(sizes))


def own_call(row: Row) -> Reading:
    """``call:NAME`` with ``sizes=4x8x16``: a name and sizes of `CALLS`.

    With ``timed=eager`` the time includes the host's work on the call; with ``timed=loop`` calls followed
    each other, and the slower of host and device determines the time.
    """
    name = row.workload.removeprefix("call:")
    if name not in CALLS:
        raise Unsupported(f"there is no call {name!r}; the known: {', '.join(sorted(CALLS))}")
    sizes = match(row, r"sizes=(\d+(?:x\d+)*)", "sizes=")[1].split("x")
    looped, host = "timed=loop" in row.params, "timed=" in row.params
    return _call(row, name, *map(int, sizes), looped=looped, host=host)


# --- Rows of bandwidths, copies and collectives

_ELEMENTS = 2**25  # doubles in an array of BabelStream: its default
_COPY_BYTES = 2**29  # of one of nvbandwidth's copies: its default
# The operator that models it, and how many arrays it reads or writes.
_STREAMS = {"copy": ("copy", 2), "mul": ("scale", 2), "scale": ("scale", 2), "add": ("add", 3)}
_STREAMS |= {"triad": ("triad", 3), "dot": ("dot", 2), "read": ("sum", 1), "init": ("fill", 1)}


def stream(row: Row) -> Reading:
    """Return the reading of a pass over memory whose bytes per second were measured (BabelStream)."""
    name = row.workload.replace(":", " ").split()[-1].lower()
    if name not in _STREAMS:
        raise Unsupported("no operator of PyTorch reads memory in this way")
    if "occupancy=" in row.params and "occupancy=100.0%" not in row.params:
        raise Unsupported("the device was held at a part of its occupancy")
    call, arrays = _STREAMS[name]
    calls = Calls(call, (_ELEMENTS,), "float64")
    return Reading("bandwidth", calls, amount=8 * arrays * _ELEMENTS)


def small_kernels(row: Row) -> Reading:
    """Return the reading of a small kernel launched repeatedly, by itself or in a CUDA graph."""
    looped = not row.params.startswith("cuda graph")
    calls = Calls("scale", tuple(field(row, "elements")), "float64", looped=looped)
    return Reading("small kernel", calls)


def nvbandwidth(row: Row) -> Reading:
    """Return the reading of copies between pinned host memory and the device."""
    known = {"Host to Device": "h2d", "Device to Host": "d2h"}
    direction = known.get(row.workload.removeprefix("nvbandwidth "))
    if direction is None:
        raise Unsupported("which of the tests between two devices it was is not said")
    return Reading("copy", Copy(direction, _COPY_BYTES), amount=_COPY_BYTES)


def own_copy(row: Row) -> Reading:
    """``copy:h2d`` or ``copy:d2h`` with ``MiB=64 source=pinned`` or ``pageable``."""
    direction = row.workload.removeprefix("copy:")
    if direction not in ("h2d", "d2h"):
        raise Unsupported("its direction is not h2d or d2h")
    source = match(row, r"source=(pinned|pageable)\b(?! on)", "source=")[1]
    return Reading("copy", Copy(direction, field(row, "MiB")[0] * 2**20, source == "pinned"))


def collective(row: Row) -> Reading:
    """Return the reading of a collective among the cards of one machine."""
    message = re.search(r"message=(\d+)([KMG])", row.params)
    if message:  # NCCL's own tests: the bandwidth of the bus, whatever the number of ranks
        nbytes = int(message[1]) << {"K": 10, "M": 20, "G": 30}[message[2]]
        ranks = int(row.params.split()[0])
        moved = 2 * (ranks - 1) / ranks * nbytes
        return Reading("collective", Collective("all_reduce", nbytes, ranks), amount=moved)
    nbytes, ranks, here = field(row, "size workers devices_per_node")
    name = row.workload.removeprefix("collective:")
    if here < ranks:
        raise Unsupported("the cards stand in more than one machine")
    if "pairwise" in row.hardware and ranks > 2:
        raise Unsupported("only pairs of the cards are linked")
    if name not in KINDS:
        raise Unsupported("the collective is not known")
    return Reading("collective", Collective(name, nbytes, ranks))
