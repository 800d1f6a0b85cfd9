"""What CUDA refuses and the CPU accepts, in its words: dtypes, operators without a deterministic kernel.

The dtypes are those that PyTorch's operator database (``torch.testing``) lists for the CPU and not for CUDA;
the other operators are those that ``torch.use_deterministic_algorithms`` documents.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

INTEGERS = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool))

# The kernel that CUDA's message names, by operator: each takes floating-point and complex numbers only.
_FLOATS_ONLY = {
    "mm": "addmm_cuda",
    "addmm": "addmm_cuda",
    "_addmm_activation": "addmm_cuda",
    "linear": "addmm_cuda",
    "bmm": "baddbmm_cuda",
    "baddbmm": "baddbmm_cuda",
    "baddbmm_": "baddbmm_cuda",
    "addmm_": "addmm_cuda",
    "mv": "addmv_impl_cuda",
    "addmv": "addmv_impl_cuda",
    "addmv_": "addmv_impl_cuda",
    "addbmm": "addmm_cuda",
    "addbmm_": "addmm_cuda",
    "dot": "dot",
    "vdot": "vdot",
    "convolution": "",
    "convolution_overrideable": "",
    "max_pool2d_with_indices": "max_pool2d_with_indices_out_cuda_frame",
    "max_pool3d_with_indices": "max_pool3d_with_indices_out_frame",
    "avg_pool2d": "avg_pool2d_out_cuda_frame",
    "avg_pool3d": "avg_pool3d_out_cuda",
    "upsample_bilinear2d": "upsample_bilinear2d_out_frame",
    "_upsample_bilinear2d_aa": "upsample_bilinear2d_aa_out_frame",
    "upsample_bicubic2d": "upsample_bicubic2d_out_frame",
    "_upsample_bicubic2d_aa": "upsample_bicubic2d_aa_out_frame",
}

# The CPU's kernels that refuse the same dtypes under another name.
_CUDA_NAMES = {
    "addmm_impl_cpu_": "addmm_cuda",
    "baddbmm_kernel": "baddbmm_cuda",
    "addmv_impl_cpu": "addmv_impl_cuda",
}

# By operator: the name in the message, and when it applies; it is called with the operator's arguments.
_Applies = Callable[..., bool]


def _always(*args: Any, **kwargs: Any) -> bool:
    """Return True."""
    return True


def _has_weights(counted: Any, weights: Any = None, *rest: Any, **kwargs: Any) -> bool:
    """Return whether ``bincount`` got weights."""
    return weights is not None


def _is_reduced(x: Any, target: Any, weight: Any, reduction: int, *rest: Any) -> bool:
    """Return whether a loss is summed or averaged."""
    return reduction != 0


def _is_float(x: Tensor, *rest: Any, **kwargs: Any) -> bool:
    """Return whether the first argument is of floating point."""
    return x.is_floating_point()


def _takes_maxima(*args: Any, **kwargs: Any) -> bool:
    """Return whether an embedding bag has the mode ``max``."""
    return args[7] == 2


# Not bilinear interpolation and replication padding, which ``torch.nn.functional`` composes in that mode.
_NONDETERMINISTIC: dict[str, tuple[str, _Applies]] = {
    "avg_pool3d_backward": ("avg_pool3d_backward_cuda", _always),
    "_adaptive_avg_pool2d_backward": ("adaptive_avg_pool2d_backward_cuda", _always),
    "_adaptive_avg_pool3d_backward": ("adaptive_avg_pool3d_backward_cuda", _always),
    "adaptive_max_pool2d_backward": ("adaptive_max_pool2d_backward_cuda", _always),
    "fractional_max_pool2d_backward": ("fractional_max_pool2d_backward_cuda", _always),
    "fractional_max_pool3d_backward": ("fractional_max_pool3d_backward_cuda", _always),
    "max_unpool2d": ("max_unpooling2d_forward_out", _always),
    "max_unpool3d": ("max_unpooling3d_forward_out", _always),
    "upsample_linear1d_backward": ("upsample_linear1d_backward_out_cuda", _always),
    "upsample_bicubic2d_backward": ("upsample_bicubic2d_backward_out_cuda", _always),
    "upsample_trilinear3d_backward": ("upsample_trilinear3d_backward_out_cuda", _always),
    "reflection_pad1d_backward": ("reflection_pad1d_backward_out_cuda", _always),
    "reflection_pad2d_backward": ("reflection_pad2d_backward_cuda", _always),
    "reflection_pad3d_backward": ("reflection_pad3d_backward_out_cuda", _always),
    "nll_loss2d_forward": ("nll_loss2d_forward_out_cuda_template", _is_reduced),
    "_ctc_loss_backward": ("ctc_loss_backward_gpu", _always),
    "_embedding_bag_dense_backward": ("embedding_bag_backward_cuda_max", _takes_maxima),
    "put_": ("put_", _always),
    "histc": ("_histc_cuda with floating point input", _is_float),
    "bincount": ("_bincount_cuda", _has_weights),
    "median.dim": ("median CUDA with indices output", _always),
    "nanmedian.dim": ("median CUDA with indices output", _always),
    "grid_sampler_2d_backward": ("grid_sampler_2d_backward_cuda", _always),
    "grid_sampler_3d_backward": ("grid_sampler_3d_backward_cuda", _always),
}


def may_refuse(op: Any) -> bool:
    """Return whether `refuse` has to be asked before an operator runs."""
    name = op._schema.name.removeprefix("aten::")
    return name in _FLOATS_ONLY or _nondeterministic(op) is not None


def _nondeterministic(op: Any) -> tuple[str, _Applies] | None:
    """Return the entry of an operator in `_NONDETERMINISTIC`, by its name with or without the overload."""
    name = op._schema.name.removeprefix("aten::")
    overload = op._overloadname.removesuffix("_values")
    return _NONDETERMINISTIC.get(f"{name}.{overload}") or _NONDETERMINISTIC.get(name)


def refuse(op: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise CUDA's error if it would not run an operator, named without ``aten::``, with these arguments.

    Raises
    ------
    NotImplementedError
        If its kernel does not take the dtype.
    RuntimeError
        If ``torch.use_deterministic_algorithms(True)`` is on, and it has no deterministic kernel.
    """
    dtype = args[0].dtype
    if dtype in INTEGERS and name in _FLOATS_ONLY and _have_dtype(args, dtype):
        kernel = _FLOATS_ONLY[name] or _convolution_kernel(args)
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtype_name(dtype)}'")
    if not torch.are_deterministic_algorithms_enabled():
        return
    entry = _nondeterministic(op)
    if entry is not None and entry[1](*args, **kwargs):
        _alert(entry[0] + _WORDS, entry[0] + _WARNING)


def _have_dtype(args: tuple[Any, ...], dtype: torch.dtype) -> bool:
    """Return whether all tensors among the arguments have one dtype."""
    return all(x.dtype is dtype for x in args if isinstance(x, Tensor))


def _convolution_kernel(args: tuple[Any, ...]) -> str:
    """Return the name of CUDA's kernel for a convolution that cuDNN does not take."""
    weight, dilation, transposed = args[1], args[5], args[6]
    size = weight.dim() - 2
    if transposed:
        return f"slow_conv_transpose{max(size, 2)}d_out_cuda"
    return "slow_conv2d_cuda" if size < 3 and set(dilation) == {1} else "slow_conv_dilated<>"


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name that C++ has for a dtype, such as ``"Long"``."""
    return torch.empty(0, dtype=dtype).type().removeprefix("torch.").removesuffix("Tensor")


def in_cudas_words(text: str) -> str:
    """Return the message of a CPU kernel that refuses a dtype, with the name of CUDA's kernel."""
    for ours, cudas in _CUDA_NAMES.items():
        text = text.replace(f'"{ours}"', f'"{cudas}"')
    return text


_WORDS = (
    " does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'. "
    "You can turn off determinism just for this operation, or you can use the 'warn_only=True' option, if "
    "that's acceptable for your application. You can also file an issue at "
    "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this "
    "operation."
)
_WARNING = (
    " does not have a deterministic implementation, but you set "
    "'torch.use_deterministic_algorithms(True, warn_only=True)'. You can file an issue at "
    "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this "
    "operation."
)


def _alert(error: str, warning: str) -> None:
    """Raise a RuntimeError, or warn where ``warn_only=True`` was asked for."""
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        raise RuntimeError(error)
    warnings.warn(warning, UserWarning, stacklevel=2)


# --- Operators that CUDA has in 16 bits and the CPU has not, or rounds more


_NAMES = """
avg_pool3d avg_pool3d_backward multi_margin_loss multi_margin_loss_backward
multilabel_margin_loss_forward multilabel_margin_loss_backward rrelu_with_noise rrelu_with_noise_backward
rrelu_with_noise_ _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward polygamma round _fft_r2c _fft_c2r
_fft_c2c
"""
_WIDER = frozenset(_NAMES.split())
_COMPLEX = {torch.float16: torch.complex32, torch.bfloat16: torch.complex64}
_WIDE = {torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}


def run_wider(op: Any, plain: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator, whose CPU kernel refused a 16-bit dtype, in float32, and round its results.

    Return ``NotImplemented`` if CUDA has no such kernel either. A tensor that it writes gets rounded values.
    """
    if op._schema.name.removeprefix("aten::") not in _WIDER:
        return NotImplemented
    dtypes = [x.dtype for x in (*plain, *kwargs.values()) if isinstance(x, Tensor) and x.dtype in _WIDE]
    if not dtypes:
        return NotImplemented
    real = torch.float16 if torch.float16 in dtypes or torch.complex32 in dtypes else torch.bfloat16
    wide = {id(x): x.to(_WIDE[x.dtype]) for x in plain if isinstance(x, Tensor) and x.dtype in _WIDE}
    out = op(*(wide.get(id(x), x) for x in plain), **kwargs)
    originals = {id(wide[id(x)]): x for x in plain if id(x) in wide}
    for argument, x in zip(op._schema.arguments, plain, strict=False):
        if argument.is_write and id(x) in wide:
            x.copy_(wide[id(x)])

    def rounded(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        if id(x) in originals:
            return originals[id(x)]
        if x.dtype is torch.complex64:
            return x.to(_COMPLEX[real])
        return x.to(real) if x.dtype is torch.float32 else x

    return tuple(map(rounded, out)) if isinstance(out, tuple) else rounded(out)
