"""Automatic mixed precision on the simulated device: the operations that CUDA casts, by list.

The lists are those of PyTorch's ``ATen/autocast_mode.h``, documented under "Autocast Op
Reference". An operation on no list runs in the dtype of its inputs. ``rms_norm`` came onto CUDA's list in
PyTorch 2.12: here it is on the list where the PyTorch that runs has it there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from .tensor import decompose, is_composite

LOWER_PRECISION = (
    "_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d "
    "conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm "
    "mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell "
    "_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell "
    "_scaled_dot_product_flash_attention scaled_dot_product_attention lstm.input lstm.data gru.input "
    "gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data"
)
"""These run in the 16-bit dtype."""

FLOAT32 = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan "
    "pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm "
    "group_norm frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss "
    "cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss "
    "huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss "
    "triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm "
    "logsumexp upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d "
    "_upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d "
    "upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d "
    "_upsample_bicubic2d_aa"
)
"""These run in float32."""

FLOAT32_RESULT = (
    "prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm "
    "linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList norm.Scalar norm.ScalarOpt_dim"
)
"""These return float32, unless the caller passes ``dtype``."""

WIDEST = (
    "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add stack cat"
)
"""These run in float32 if the dtypes of their tensors that autocast may cast differ; see `_to_widest`."""

COMPOSITE = (
    "cross_entropy_loss nll_loss_nd pairwise_distance upsample_nearest1d.vec "
    "upsample_nearest2d.vec upsample_nearest3d.vec upsample_linear1d.vec upsample_bilinear2d.vec "
    "upsample_trilinear3d.vec upsample_bicubic2d.vec"
)
"""Not on PyTorch's lists, but composed of operations that are; decomposed here, for inference mode too."""

BANNED = "binary_cross_entropy"

_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
_cast_weights: dict[tuple[int, torch.dtype], tuple[weakref.ref[Tensor], Tensor]] = {}


def _is_eligible(x: Any) -> bool:
    """Return whether autocast may cast a value: a simulated floating-point tensor other than float64."""
    return (
        isinstance(x, Tensor)
        and x.device.type == "sim"
        and x.is_floating_point()
        and x.dtype is not torch.float64
    )


def _cast(x: Any, dtype: torch.dtype) -> Any:
    """Return a value cast to ``dtype`` if `_is_eligible` says so, else the value itself.

    Lists and tuples are cast item by item. The copy of a weight (a float32 leaf that requires a gradient) is
    cached until `clear_cache`, and each call returns the same copy; with autocast's cache off, nothing is
    cached. A copy made without gradients has no graph, so the weight is cast again once gradients are on.
    """
    if isinstance(x, (list, tuple)):
        return type(x)(_cast(item, dtype) for item in x)
    if not _is_eligible(x) or x.dtype is dtype:
        return x
    if not (x.requires_grad and x.is_leaf and x.dtype is torch.float32):
        return x.to(dtype)
    if not torch.is_autocast_cache_enabled():
        return x.to(dtype)
    key = (id(x), dtype)  # a weight is cast once, as long as the outermost autocast lasts
    cached = _cast_weights.get(key)
    is_without_graph = cached is not None and torch.is_grad_enabled() and not cached[1].requires_grad
    if cached is None or cached[0]() is not x or is_without_graph:
        cached = _cast_weights[key] = (weakref.ref(x), x.to(dtype))
    return cached[1]


def _cast_all(fixed_dtype: torch.dtype | None, op: Any) -> Callable[..., Any]:
    """Return the autocast kernel that casts the arguments by `_cast` to ``fixed_dtype``, then calls ``op``.

    None means the dtype of the autocast context in effect at the call.
    """

    def rule(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            dtype = fixed_dtype or torch.get_autocast_dtype("sim")
            kwargs = {key: _cast(value, dtype) for key, value in kwargs.items()}
            return op(*(_cast(x, dtype) for x in args), **kwargs)

    return rule


def _float32_result(op: Any) -> Callable[..., Any]:
    """Return the autocast kernel that casts the first argument to float32, unless ``dtype`` is passed.

    Only the first is cast, and only if `_is_eligible` says so.
    """
    names = [a.name for a in op._schema.arguments]
    position = names.index("dtype") if "dtype" in names else None

    def rule(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            dtype = kwargs.get("dtype")
            if dtype is None and position is not None and len(args) > position:
                dtype = args[position]
            if dtype is None and _is_eligible(args[0]):
                args = (_cast(args[0], torch.float32), *args[1:])
            return op(*args, **kwargs)

    return rule


def _to_widest(op: Any) -> Callable[..., Any]:
    """Return the autocast kernel that casts the eligible tensors to float32 if their dtypes differ.

    Those that are not eligible (`_is_eligible`), such as integers, are neither cast nor compared.
    """

    def rule(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            dtypes = {x.dtype for x in tree_leaves((args, kwargs)) if _is_eligible(x)}
            if len(dtypes) > 1:
                kwargs = {key: _cast(value, torch.float32) for key, value in kwargs.items()}
                args = tuple(_cast(x, torch.float32) for x in args)
            return op(*args, **kwargs)

    return rule


def _decomposed(op: Any) -> Callable[..., Any]:
    """Return the autocast kernel that runs ``op`` by its decomposition, so that the parts are cast."""
    return lambda *args, **kwargs: decompose(op, args, kwargs)


def _banned(*args: Any, **kwargs: Any) -> Any:
    """Raise the RuntimeError of CUDA's autocast for an operator that is unsafe in float16."""
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
        "In this case, combine the two layers using "
        "torch.nn.functional.binary_cross_entropy_with_logits\n"
        "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
        "safe to autocast."
    )


def _is_on_cudas_list(name: str) -> bool:
    """Return whether CUDA's autocast has a rule for an operator, also in a build without CUDA."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCUDA")


def clear_cache() -> None:
    """Delete the cached 16-bit copies of weights, as the end of the outermost autocast does."""
    _cast_weights.clear()


def register(library: Any, fallback: Any) -> list[Callable[..., Any]]:
    """Register the autocast kernels for the simulated device; return those that Dynamo must skip.

    They are all but that of `BANNED`, which raises. Operations on no list fall through. ``library`` is the
    torch.library.Library of the namespace aten, ``fallback`` that of all namespaces.
    """
    fallback.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    registered: list[Callable[..., Any]] = []
    rules = {
        LOWER_PRECISION: partial(_cast_all, None),
        FLOAT32: partial(_cast_all, torch.float32),
        FLOAT32_RESULT: _float32_result,
        WIDEST: _to_widest,
        COMPOSITE: _decomposed,
    }
    for names, rule in rules.items():
        for name in names.split():
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
            if op is None:  # a name this release does not have
                continue
            if name == "rms_norm" and not _is_on_cudas_list(name):
                continue
            if rule is not _decomposed or is_composite(op):
                registered.append(rule(op))
                library.impl(name, registered[-1], "AutocastPrivateUse1")
    library.impl(BANNED, _banned, "AutocastPrivateUse1")
    return registered
