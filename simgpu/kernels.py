"""Operators that the CPU lacks or decomposes, where a GPU has one kernel.

Recurrent cells and attention have one kernel each on a GPU, so the simulated device has them too. Others
are operators that PyTorch handles differently for a Python tensor subclass than for CUDA tensors.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .machine import MACHINE
from .tensor import SPECIAL, SimTensor, compute, decompose, dispatch

aten = torch.ops.aten


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute ``scaled_dot_product_attention`` by the algorithm that the CPU would choose: flash or math."""
    _check_attention(query, key, value, attn_mask, is_causal)
    with torch._C._DisableTorchDispatch():
        grad = torch.is_grad_enabled()
        requires_grad = grad and any(x.requires_grad for x in (query, key, value))
        plain = [_payload(x).detach().requires_grad_(requires_grad) for x in (query, key, value)]
        mask = attn_mask
        if mask is not None:
            mask = _payload(mask).detach().requires_grad_(mask.requires_grad and grad)
        if _payload(query).is_meta:  # choose as for CPU tensors, also without data
            *plain, mask = (_empty_on_cpu(x) for x in (*plain, mask))
        fused = _fused_backends(query)
        with _flash_allowed():
            choice = torch._fused_sdp_choice(
                *plain, mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
    if not fused and not torch.backends.cuda.math_sdp_enabled():
        raise RuntimeError("No available kernel. Aborting execution.")
    if attn_mask is not None and attn_mask.dtype is torch.bool:  # from here on it is added
        keep, drop = (query.new_full((), value) for value in (0.0, -math.inf))
        attn_mask = torch.where(attn_mask, keep, drop)
    if fused and choice == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value:
        has_batch = query.dim() == 4  # from 2.15 on it is chosen without a batch, too
        if not has_batch:
            query, key, value = (x[None] for x in (query, key, value))
            if attn_mask is not None and attn_mask.dim() == 3:
                attn_mask = attn_mask[None]
        out = aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )[0]
        return out if has_batch else out[0]
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


def _fused_backends(query: Tensor) -> list[str]:
    """Return which fused backends are switched on and run on this card; warn of what it cannot, as CUDA does.

    Flash attention and cuDNN's need compute capability 8.0 and 16 bits, memory-efficient attention neither.
    """
    card = MACHINE.device(query.device).profile.capability
    half = query.dtype in (torch.float16, torch.bfloat16)
    backends = torch.backends.cuda
    able = [name for name, on in (("efficient", backends.mem_efficient_sdp_enabled()),) if on]
    modern = [("flash", backends.flash_sdp_enabled()), ("cudnn", backends.cudnn_sdp_enabled())]
    able += [name for name, on in modern if on and half and card >= (8, 0)]
    if not able and backends.flash_sdp_enabled() and not backends.math_sdp_enabled():
        reason = (
            "Flash attention only supports gpu architectures of sm80 or newer. "
            f"Attempting to run on a sm {card[0]}.{card[1]} gpu."
            if card < (8, 0)
            else f"Expected query, key and value to all be of dtype: {{Half, BFloat16}}. Got {query.dtype}."
        )
        warnings.warn(f"Flash attention kernel not used because: {reason}", UserWarning, stacklevel=3)
    return able


@contextlib.contextmanager
def _flash_allowed() -> Iterator[None]:
    """Let the CPU choose its fused kernel, which computes the values of every fused backend of the card."""
    backends = torch.backends.cuda
    if backends.flash_sdp_enabled() and backends.math_sdp_enabled():
        yield
        return
    before = backends.flash_sdp_enabled(), backends.math_sdp_enabled()
    backends.enable_flash_sdp(True), backends.enable_math_sdp(True)
    try:
        yield
    finally:
        backends.enable_flash_sdp(before[0]), backends.enable_math_sdp(before[1])


def _check_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, is_causal: bool) -> None:
    """Raise PyTorch's errors for invalid inputs of attention."""
    if not query.device == key.device == value.device:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{query.device} key.device: {key.device} and value.device: {value.device} instead."
        )
    dims = min(query.dim(), key.dim(), value.dim())
    masks = mask is None or mask.dtype in (torch.bool, torch.float32, query.dtype)
    masks = masks and not (is_causal and mask is not None)
    if masks and dims >= 2 and query.dtype is key.dtype is value.dtype:
        return
    inputs = (query, key, value, mask)
    empty = [x if x is None else torch.empty((1,) * x.dim(), dtype=x.dtype) for x in inputs]
    torch.nn.functional.scaled_dot_product_attention(*empty, is_causal=is_causal)  # it raises


def _payload(tensor: Tensor) -> Tensor:
    """Return the CPU tensor of a SimTensor; other tensors as they are."""
    return tensor._payload if isinstance(tensor, SimTensor) else tensor


def _empty_on_cpu(tensor: Tensor | None) -> Tensor | None:
    """Return an uninitialized CPU tensor with the same shape, strides and dtype; None for None."""
    if tensor is None:
        return None
    like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return like.requires_grad_(tensor.requires_grad)


def _gates(input_gates: Tensor, hidden_gates: Tensor, biases: tuple[Tensor | None, ...]) -> list[Tensor]:
    """Return the two pre-activations with their biases added."""
    pair = zip((input_gates, hidden_gates), biases, strict=True)
    return [x if bias is None else x + bias for x, bias in pair]


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute one LSTM step: aten::_thnn_fused_lstm_cell in differentiable operations.

    ``input_gates`` and ``hidden_gates`` are the pre-activations of the four gates, (batch, 4 * hidden) each;
    the biases are (4 * hidden,).

    Returns
    -------
    tuple of Tensor
        The next hidden state and cell state, (batch, hidden) each, and the summed pre-activations, detached,
        in place of ATen's workspace.
    """
    gates = sum(_gates(input_gates, hidden_gates, (input_bias, hidden_bias)))
    i, f, g, o = gates.chunk(4, 1)
    cy = f.sigmoid() * cx + i.sigmoid() * g.tanh()
    return o.sigmoid() * cy.tanh(), cy, gates.detach()


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute one GRU step: aten::_thnn_fused_gru_cell in differentiable operations.

    ``input_gates`` and ``hidden_gates`` are the pre-activations of the reset, update and new gates,
    (batch, 3 * hidden) each; the biases are (3 * hidden,).

    Returns
    -------
    tuple of Tensor
        The next hidden state, and the new gate, detached, in place of ATen's workspace; both (batch, hidden).
    """
    a, b = _gates(input_gates, hidden_gates, (input_bias, hidden_bias))
    (ri, zi, ni), (rh, zh, nh) = a.chunk(3, 1), b.chunk(3, 1)
    r, z = (ri + rh).sigmoid(), (zi + zh).sigmoid()
    n = (ni + r * nh).tanh()
    return (hx - n) * z + n, n.detach()


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *rest: Any
) -> Tensor:
    """Compute the CTC loss; lengths on a device are copied to the host, which synchronizes.

    Without a batch each length is a 0-dim tensor.
    """
    lengths = (input_lengths.reshape(-1).tolist(), target_lengths.reshape(-1).tolist())
    return aten.ctc_loss.IntList(log_probs, targets, *lengths, *rest)


def _fft(op: Any) -> Callable[..., Any]:
    """Return the kernel of a Fourier transform that also takes 16 bits: computed in float32, and rounded.

    PyTorch lets only CUDA's tensors through with those.
    """

    def transform(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        wide = {torch.float16: torch.float32, torch.complex32: torch.complex64}.get(x.dtype)
        if wide is None:
            return decompose(op, (x, *args), kwargs)
        out = decompose(op, (x.to(wide), *args), kwargs)
        return out.to(torch.complex32 if out.is_complex() else torch.float16)

    return transform


def unscale(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute aten::_amp_foreach_non_finite_check_and_unscale_ for a GradScaler.

    Raise NotImplementedError for bfloat16 gradients, as CUDA does.
    """
    if any(grad.dtype is torch.bfloat16 for grad in args[0]):
        raise NotImplementedError(
            "\"_amp_foreach_non_finite_check_and_unscale_cuda\" not implemented for 'BFloat16'"
        )
    return compute(op, args, kwargs)


def histc(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute aten::histc, also of integer tensors, which CUDA accepts and the CPU does not."""
    tensor, *rest = args
    if tensor.dtype.is_floating_point:
        return compute(op, args, kwargs)
    return compute(op, (tensor.double(), *rest), kwargs).to(tensor.dtype)


def register(library: Any) -> list[Callable[..., Any]]:
    """Register these kernels for the simulated device, and return them.

    ``library`` is the torch.library.Library of the namespace aten.
    """
    kernels: list[Callable[..., Any]] = []
    ffts = [getattr(aten, f"fft_{name}").default for name in _FFTS.split()]
    for op, kernel in (
        *((op, _fft(op)) for op in ffts),
        (aten.scaled_dot_product_attention.default, attention),
        (aten._thnn_fused_lstm_cell.default, lstm_cell),
        (aten._thnn_fused_gru_cell.default, gru_cell),
        (aten.ctc_loss.Tensor, ctc_loss),
    ):
        kernels.append(kernel)
        library.impl(op, kernel, "AutogradPrivateUse1")
        # In inference mode, where autograd is away, they are dispatched to `tensor.dispatch`.
        SPECIAL[op] = lambda op, args, kwargs, call=kernel: call(*args, **kwargs)
    SPECIAL[aten.histc.default] = histc
    SPECIAL[aten._amp_foreach_non_finite_check_and_unscale_.default] = unscale
    # PyTorch calls these below __torch_dispatch__, or decomposes them before it.
    for name in ("copy_", "_local_scalar_dense", "silu_backward", "mish_backward"):
        kernels.append(_run_directly(getattr(aten, name).default))
        library.impl(name, kernels[-1], "PrivateUse1")
    return kernels


_FFTS = (
    "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn hfftn ihfftn"
)


def _run_directly(op: Any) -> Callable[..., Any]:
    """Return a kernel that passes the operator to `tensor.dispatch`."""
    return lambda *args, **kwargs: dispatch(op, args, kwargs)
