"""The matrix products (GEMMs) that a GPU computes for an operation, and their memory layout."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Gemm(NamedTuple):
    """Matrix products (GEMMs) of one shape, (rows, depth) @ (depth, columns), of an operation.

    ``plane`` is (images, height, width) of the result of a 3 x 3 convolution of stride 1, which Winograd's
    algorithms can compute; else None.
    """

    batch: int  # the number of products
    rows: int
    columns: int
    depth: int
    batched: bool = False  # as ``bmm`` computes them
    plane: tuple[int, int, int] | None = None


def gemms_of(name: str, args: tuple[Any, ...], out: Any) -> tuple[str, tuple[Gemm, ...]]:
    """Return an operation's kind, and the matrix products (GEMMs) that a GPU computes for it.

    Parameters
    ----------
    name
        The operator's name, such as ``"aten.addmm"``: a matrix product, linear, convolution (forward or
        backward) or attention; no other may be passed.
    args
        Its positional arguments.
    out
        Its result.

    Returns
    -------
    str and tuple of Gemm
        ``"product"``, ``"convolution"``, ``"pointwise"`` (1 x 1), ``"depthwise"`` or ``"attention"``;
        the last two have no GEMMs, and neither has a product with a vector.
    """
    if "convolution_backward" in name:
        i = 3 if "overrideable" in name else 4  # after the sizes of the bias, which the former lacks
        return _conv_backward_gemms(*args[:3], args[i], *args[i + 5 : i + 7])
    if "convolution" in name:
        return _conv_gemms(args[0], args[1], args[3], args[6], args[8], out)
    if "attention" in name:
        return "attention", ()
    tensors = [x for x in args if isinstance(x, Tensor)]
    if "linear" in name:
        x, weight = tensors[:2]
        return "product", (Gemm(1, x.numel() // x.shape[-1], weight.shape[0], x.shape[-1]),)
    a, b = tensors[-2:]
    if a.dim() == 3 and b.dim() == 3:
        return "product", (Gemm(a.shape[0], a.shape[1], b.shape[2], a.shape[2], True),)
    if a.dim() == 2 and b.dim() == 2:
        return "product", (Gemm(1, a.shape[0], b.shape[1], a.shape[1]),)
    return "product", ()


def _conv_gemms(
    x: Tensor, weight: Tensor, stride: Any, transposed: bool, groups: int, out: Tensor
) -> tuple[str, tuple[Gemm, ...]]:
    """Return a convolution's kind, see `gemms_of`, and its one GEMM, or none if it is depthwise.

    ``out`` is its result. Only shapes are used; ``stride`` decides whether Winograd's algorithms may be used.
    """
    if transposed:  # a convolution's input gradient as a forward pass
        x, out = out, x
    in_channels, kernel_size = weight.shape[1], math.prod(weight.shape[2:])
    if groups > 1 and in_channels == 1:
        return "depthwise", ()
    output_pixels = out.shape[0] * math.prod(out.shape[2:])
    if transposed:
        input_pixels = x.shape[0] * math.prod(x.shape[2:])
        return _conv_kind(kernel_size), (
            Gemm(
                groups,
                input_pixels,
                in_channels,
                out.shape[1] // groups * kernel_size * output_pixels // input_pixels or 1,
            ),
        )
    plane = (out.shape[0], *out.shape[2:]) if _allows_winograd(weight, stride, groups) else None
    return _conv_kind(kernel_size), (
        Gemm(groups, output_pixels, out.shape[1] // groups, in_channels * kernel_size, plane=plane),
    )


def _conv_backward_gemms(
    grad: Tensor, x: Tensor, weight: Tensor, stride: Any, groups: int, mask: Any
) -> tuple[str, tuple[Gemm, ...]]:
    """Return the kind, see `gemms_of`, and the GEMMs of a convolution's backward pass: at most two.

    ``mask`` says which gradients are computed: input, weight, bias.
    """
    in_channels, kernel_size = weight.shape[1], math.prod(weight.shape[2:])
    if groups > 1 and in_channels == 1:
        return "depthwise", ()
    output_pixels = grad.shape[0] * math.prod(grad.shape[2:])
    input_pixels = x.shape[0] * math.prod(x.shape[2:])
    out_channels = grad.shape[1] // groups
    plane = (x.shape[0], *x.shape[2:]) if _allows_winograd(weight, stride, groups) else None
    input_gemm = Gemm(
        groups,
        input_pixels,
        in_channels,
        max(1, out_channels * kernel_size * output_pixels // input_pixels),
        plane=plane,
    )
    weight_gemm = Gemm(groups, out_channels, in_channels * kernel_size, output_pixels)
    products = zip(mask, (input_gemm, weight_gemm), strict=False)
    return _conv_kind(kernel_size), tuple(product for needed, product in products if needed)


def _conv_kind(kernel_size: int) -> str:
    """Return the kind of a convolution whose kernel has this many elements."""
    return "convolution" if kernel_size > 1 else "pointwise"


def channels_first_work(
    name: str, kind: str, products: tuple[Gemm, ...], args: tuple[Any, ...]
) -> tuple[tuple[Gemm, ...], tuple[tuple[int, int], ...]]:
    """Return `cost.Work.per_image` and ``conversions`` of an NCHW convolution; one or both are empty.

    A 1 x 1 convolution of stride 1, with rows of multiples of 16 bytes, is one GEMM per image. Otherwise
    inputs are converted to NHWC before, and gradients back after; a forward pass writes the right layout.
    """
    if kind not in ("convolution", "pointwise") or args[0].dim() != 4 or not products:
        return (), ()
    backward = "backward" in name
    x, weight = args[1:3] if backward else args[:2]
    if x.is_contiguous(memory_format=torch.channels_last) or is_channels_last(weight):
        return (), ()
    needs_input_grad, needs_weight_grad = args[-1][:2] if backward else (True, False)
    row = math.prod(x.shape[2:]) * x.element_size()
    stride = args[3 if "overrideable" in name or not backward else 4]
    if kind == "pointwise" and set(stride) == {1} and row % 16 == 0:
        count = len(x)
        *rest, last = (p._replace(batch=p.batch * count) for p in products)
        per_image = [p._replace(rows=p.rows // count) for p in (*rest, *[last] * (not needs_weight_grad))]
        return (*per_image, *[last._replace(depth=last.depth // count)] * needs_weight_grad), ()
    tensors = [args[0], weight, x] * needs_input_grad if backward else [x, weight]
    if needs_weight_grad:
        # Its kernel converts them again; a 1 x 1 weight gradient is the same in both layouts.
        tensors += [x, args[0], *[weight] * (kind == "convolution")]
    return (), tuple((layout_tiles(t), 2 * bytes_of([t])) for t in tensors)


def layout_tiles(images: Tensor) -> int:
    """Return the number of tiles of 32 channels x 32 pixels in a tensor (N, C, ...), images or weights."""
    count, channels, *pixels = images.shape
    return count * -(-channels // 32) * -(-math.prod(pixels) // 32)


def is_channels_last(images: Tensor) -> bool:
    """Return whether a 4-dim tensor is in channels_last memory format and not contiguous as well."""
    last = images.dim() == 4 and images.is_contiguous(memory_format=torch.channels_last)
    return last and not images.is_contiguous()


def _allows_winograd(weight: Tensor, stride: Any, groups: int) -> bool:
    """Return whether Winograd's algorithms can compute a convolution: 3 x 3, stride 1, one group."""
    return tuple(weight.shape[2:]) == (3, 3) and set(stride) == {1} and groups == 1


def is_unaligned(matrices: Iterable[Tensor], elements_per_load: int) -> bool:
    """Return whether the rows of any matrix are not aligned to loads of ``elements_per_load`` elements."""
    strides = (step for matrix in matrices for step in matrix.stride()[-2:])
    return any(step % elements_per_load for step in strides if step != 1)


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of the tensors' elements in total; an expanded dimension counts as 1."""
    total = 0
    for t in tensors:
        count = t.element_size()
        for size, stride in zip(t.shape, t.stride(), strict=True):
            if stride or not size:
                count *= size
        total += count
    return total
