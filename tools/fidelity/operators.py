"""Rows that measured one operator: what was called, and how it was timed."""

from __future__ import annotations

import math
import re

from .rows import Row
from .workload import Calls, Interpretation, Uninterpretable

_DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "fp16 in, fp32 accumulate": "float16",
    "bf16": "bfloat16",
}


def dtype_of(row: Row) -> str:
    """Return PyTorch's name of a row's dtype.

    Raises
    ------
    Uninterpretable
        Where the simulated device has no products in it.
    """
    name = _DTYPES.get(row.dtype.strip().lower())
    if name is None:
        raise Uninterpretable(f"the dtype {row.dtype!r} is not modelled")
    return name


def fields(text: str) -> dict[str, int]:
    """Return the numbers that a text names, as in ``m=1024 n=768`` or ``B1 M226 K(out)5607``."""
    found = re.findall(r"([A-Za-z_]+)(?:\([a-z]+\))?=?(\d+)(?![\d.A-Za-z])", text)
    return {name: int(number) for name, number in found}


def _named(row: Row, names: str) -> list[int]:
    known = fields(row.params)
    missing = [name for name in names.split() if name not in known]
    if missing:
        raise Uninterpretable(f"its parameters do not say {', '.join(missing)}")
    return [known[name] for name in names.split()]


# --- One eager call, timed by events on an idle stream (NeuSight)

_ELEMENTWISE = {"add", "sub", "mul", "div", "pow", "addu", "subu", "mulu", "divu", "powu"}
_ELEMENTWISE |= {"relu", "tanh", "gelu", "sigmoid", "silu", "exp"}


def eager(row: Row) -> Interpretation:
    """NeuSight's operators: float32 with TF32 off; the host's work on the call is in the time."""
    op = row.workload.removeprefix("op:")
    dtype = dtype_of(row)
    if op == "linear":
        sizes = (*_named(row, "B M N K"), 1)
        return Interpretation("product", Calls("linear", sizes, dtype), host=True)
    if op == "bmm":
        return Interpretation("product", Calls("bmm", tuple(_named(row, "B M N K")), dtype), True)
    if op == "conv":
        # Whether there was a bias is not said; without one it is one kernel.
        sizes = tuple(_named(row, "N Cin Cout k in s p"))
        return Interpretation("convolution", Calls("conv", sizes, dtype), host=True)
    sizes = tuple(_named(row, "B H"))
    if op in _ELEMENTWISE:
        return Interpretation("elementwise", Calls(op, sizes, dtype), host=True)
    if op == "softmax":
        return Interpretation("softmax", Calls("softmax", sizes, dtype), host=True)
    if op == "ln":
        return Interpretation("norm", Calls("layer_norm", sizes, dtype), host=True)
    raise Uninterpretable("the operator is not known")


# --- The operators of one layer of a language model, from a profiler (vidur): kernels alone

_VOCABULARY = {"Llama-2": 32_000, "Llama-3": 128_256, "phi-2": 51_200}


def _words(model: str, tp: int) -> int:
    for name, words in _VOCABULARY.items():
        if name in model:
            return words // tp
    raise Uninterpretable(f"the vocabulary of {model} is not known")


def layer(row: Row) -> Interpretation:
    """Products are split among ``tp`` cards; what is timed is the part of one of them."""
    op, dtype = row.workload.removeprefix("op:"), dtype_of(row)
    width, ffn, heads, kv, tokens, tp = _named(row, "d ffn heads kv tokens tp")
    gated, head = "gated=True" in row.params, width // heads
    bias = int(not gated)  # phi-2 has biases, the Llamas have none
    products = {
        "attn_pre_proj": (width, (heads + 2 * kv) * head // tp),
        "attn_post_proj": (width // tp, width),
        "mlp_up_proj": (width, (2 if gated else 1) * ffn // tp),
        "mlp_down_proj": (ffn // tp, width),
    }
    if op in products:
        calls = Calls("linear", (1, tokens, *products[op], bias), dtype)
        return Interpretation("product", calls)
    if op == "emb":
        sizes = (tokens, _words(row.params, tp), width)
        return Interpretation("gather", Calls("embedding", sizes, dtype))
    if op == "add":
        calls = Calls("add" if gated else "add_two", (tokens, width), dtype)
        return Interpretation("elementwise", calls)
    if op == "input_layernorm" and not gated:
        return Interpretation("norm", Calls("layer_norm", (tokens, width), dtype))
    if op == "mlp_act" and not gated:
        return Interpretation("elementwise", Calls("gelu", (tokens, ffn // tp), dtype))
    # Kernels of the inference engine's own; what stands for each reads and writes the same bytes.
    own = {
        "input_layernorm": Calls("layer_norm", (tokens, width, 0), dtype),
        "mlp_act": Calls("gate", (tokens, 2 * ffn // tp), dtype),
        "attn_rope": Calls("rotate", (tokens, (heads + kv) * head // tp), dtype),
    }
    if op in own:
        return Interpretation("fused kernel", own[op])
    raise Uninterpretable("the operator is not known")


# --- Products in a loop


def deepbench(row: Row) -> Interpretation:
    """``C = A B`` by columns, which is ``Cᵀ = Bᵀ Aᵀ`` by rows, as PyTorch has it."""
    m, n, k = _named(row, "M N K")
    transposed = re.search(r"transA=(\w) transB=(\w)", row.params)
    if transposed is None:
        raise Uninterpretable("its parameters do not say which side is transposed")
    left, right = int(transposed[2] == "T"), int(transposed[1] == "T")
    return Interpretation("product", Calls("mm", (n, m, k, left, right), dtype_of(row)))


def rate_of_product(row: Row) -> Interpretation:
    """Say how long a product takes whose FLOP/s were measured: cublasLt, mamf."""
    found = re.search(r"MxNxK=(\d+)x(\d+)x(\d+)", row.params)
    m, n, k = map(int, found.groups()) if found else _named(row, "m n k")
    calls = Calls("mm", (m, n, k), dtype_of(row), row.dtype == "tf32")
    return Interpretation("product", calls, amount=2 * m * n * k)


# --- Wall-clock time of one eager call and a wait (LLMCompass)


def wall_clock(row: Row) -> Interpretation:
    """LLMCompass: each call is waited for, so the host's work on it is in the time."""
    dtype = dtype_of(row)
    if row.workload == "matmul":
        m, n, k = _named(row, "M N K")
        return Interpretation("product", Calls("mm", (m, n, k), dtype), host=True)
    if row.workload == "layernorm":
        raise Uninterpretable("it was compiled")
    sizes = tuple(_named(row, "M N"))
    calls = Calls("softmax", sizes, dtype)
    return Interpretation("softmax", calls, host=True, amount=math.prod(sizes))


# --- Our own form


def own(row: Row) -> Interpretation:
    """``call:NAME`` with the sizes as ``sizes=4x8x16``: what `calls.CALLS` can call.

    With ``timed=eager`` in the parameters the host's work on the call is in the time; with ``timed=loop`` calls
    followed each other, and the slower of host and device decides.
    """
    from .calls import CALLS

    name = row.workload.removeprefix("call:")
    sizes = re.search(r"sizes=(\d+(?:x\d+)*)", row.params)
    if name not in CALLS:
        raise Uninterpretable(f"there is no call {name!r}; the known: {', '.join(sorted(CALLS))}")
    if sizes is None:
        raise Uninterpretable("its parameters do not say sizes=")
    kind = next((kind for kind, names in _KINDS.items() if name in names), "elementwise")
    numbers, tf32 = tuple(map(int, sizes[1].split("x"))), row.dtype.lower() == "tf32"
    calls = Calls(name, numbers, dtype_of(row), tf32, "timed=loop" in row.params)
    return Interpretation(kind, calls, host="timed=" in row.params)


_KINDS = {
    "product": ("linear", "mm", "bmm"),
    "convolution": ("conv",),
    "softmax": ("softmax",),
    "norm": ("layer_norm",),
    "gather": ("embedding",),
    "attention": ("attention",),
    "reduction": ("sum", "dot"),
}
