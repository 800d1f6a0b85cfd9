"""The latency model: how many seconds a device takes for the work of an operation.

A kernel computes and moves bytes at the same time, so the slower of the two decides, and every kernel
pays a fixed start on top::

    seconds = kernel_floor + max(compute, bytes / rate)

*Bytes.* An elementwise operation reaches ``memory_efficiency`` of the card's bandwidth; operations by rows
(norms, softmax, sums, lookups) reach a share of that, and at most a number of elements per clock on each
processor. So does an elementwise operation on tensors with different strides (one of them expanded or
transposed): its kernel cannot vectorize its loads.

*Matrix products* are computed in tiles, one tile of the result at a time on each processor. So the time is a
number of waves (tiles over processors, rounded up) times the time of one tile. A small tile uses a
processor's arithmetic less well, because it reuses loaded data less often, and a processor needs several of
them at a time. If there are too few tiles, the depth may be split among several processors, and the partial
results added (split-k). The fastest of the library's tiles and splits is taken. Tensor cores are slow if rows
are not aligned to their loads: with 50,257 columns, not 50,304.

*Convolutions* are matrix products of the unfolded input, or one of Winograd's algorithms if that is faster.
For tensor cores NCHW images and weights are converted to NHWC first, and gradients back, in tiles of 32 x 32,
each by a kernel of its own. A 1 x 1 convolution may take NCHW images as they are: then it is one product per
image, too small for loading and computing to overlap. A trace of a ResNet-50 trained on an A100 in
TF32 (facebookresearch/HolisticTraceAnalysis) shows both, and the next.

*Batch norms* of NCHW images have one block of threads for each channel, and each block reads a fixed number
of elements per clock, of 16 bits as of 32.

What the model leaves out: operations of several kernels, padding to the tensor cores'
sizes, and libraries that do not choose their fastest kernel.

The figures that all cards share are under ``shared`` in ``profiles.json``, those of a card under its name,
each with its source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .cost import Work
from .products import Gemm
from .profiles import Profile

Tile = tuple[int, int]

_SIMT: tuple[Tile, ...] = ((128, 128), (128, 64), (64, 64), (128, 32), (64, 32), (32, 32))
_TENSOR: tuple[Tile, ...] = ((256, 128), (128, 128), (128, 64), (64, 64), (64, 32))
_SPLITS = (1, 2, 4, 8, 16)

# cuBLAS uses other tiles for a batch in float32, without split-k: (rows, columns), from the kernels' names
# in NeuSight's measurements. With one product the largest tile is hardly ever taken from Ampere on.
_BATCHED_TURING: tuple[Tile, ...] = ((64, 64), (64, 128), (32, 128))
_BATCHED_AMPERE: tuple[Tile, ...] = ((128, 128),)


def seconds(work: Work, profile: Profile) -> float:
    """Return the modelled device time of an operation in seconds; 0 if no kernel runs."""
    if work.unit == "none":
        return 0.0
    cached = profile.latency_cache.get(work)
    if cached is None:
        cached = profile.latency_cache[work] = profile.kernel_floor + _busy_seconds(work, profile)
    return cached


def _busy_seconds(work: Work, profile: Profile) -> float:
    """Return the device time of a kernel in seconds, beside ``kernel_floor``."""
    model = profile.shared
    simt = work.unit in ("fp32", "fp64") or profile.emulates(work.unit)
    memory_seconds = _memory_seconds(work.bytes, profile)
    clocks_per_second = profile.processors * profile.clock
    if work.kind == "stream":
        return max(work.flops / profile.rates["fp32"], memory_seconds)
    if work.kind == "strided":
        return max(work.flops / (model.strided_pace * clocks_per_second), memory_seconds)
    product_share = "product_share_simt" if simt else "product_share_tensor"
    if work.per_image and not simt:
        return memory_seconds + sum(_tiled_gemm_seconds(gemm, work.unit, profile) for gemm in work.per_image)
    memory_seconds /= getattr(model, _SHARES.get(work.kind, product_share))
    if work.kind in _PACES:
        pace = getattr(model, _PACES[work.kind]) * clocks_per_second
        if work.blocks:
            pace *= min(1.0, work.blocks / profile.processors)
        return model.row_floor + max(work.flops / pace, memory_seconds)
    if work.kind == "attention":
        return max(work.flops / (profile.rates[work.unit] * model.attention_share), memory_seconds)
    if not work.products:
        return max(work.flops / profile.rates[work.unit] if work.matrix else 0.0, memory_seconds)
    share = profile.convolution_share if simt and work.kind == "convolution" else 1.0
    duration = sum(_gemm_seconds(gemm, work.unit, profile, share) for gemm in work.products)
    if work.unaligned and not simt:
        duration = max(duration, work.flops / (model.unaligned_pace * clocks_per_second))
    conversion = 0.0 if simt else sum(_layout_conversion_seconds(*each, profile) for each in work.conversions)
    return conversion + max(duration, memory_seconds)


def _layout_conversion_seconds(tiles: int, nbytes: int, profile: Profile) -> float:
    """Return the seconds of a kernel that converts a tensor between NCHW and NHWC, with its ``kernel_floor``.

    ``tiles`` are of 32 channels x 32 pixels; ``nbytes`` are read and written.
    """
    pace = profile.shared.layout_pace * profile.processors * profile.clock
    rate = profile.memory_rate * profile.shared.layout_share
    return profile.kernel_floor + max(tiles * 1024 / pace, nbytes / rate)


_SHARES = {
    "softmax": "softmax_share",
    "reduce": "reduce_share",
    "gather": "reduce_share",
    "depthwise": "depthwise_share",
}
"""By kind: the figure for the share of the memory rate that it reaches; others are matrix products."""

_PACES = {"softmax": "softmax_pace", "reduce": "reduce_pace", "gather": "gather_pace"}


def _memory_seconds(nbytes: float, profile: Profile) -> float:
    """Return the seconds to read and write ``nbytes`` of device memory sequentially.

    Recently used data may still be in the cache: a small tensor surely is, one of the cache's size hardly
    ever.
    """
    hit_rate = max(0.0, 1 - nbytes / profile.l2)
    return nbytes / profile.memory_rate * (1 - hit_rate * (1 - 1 / profile.shared.cache_gain))


def _gemm_seconds(gemm: Gemm, unit: str, profile: Profile, share: float) -> float:
    """Return the seconds of a matrix product or convolution by the fastest algorithm.

    ``share`` is the share of the rate that a convolution reaches.
    """
    if gemm.plane and (unit == "fp32" or (unit == "tf32" and profile.emulates(unit))):
        algorithms = (_implicit_gemm_seconds, _winograd_f2x2_fused_seconds, _winograd_f4x4_nonfused_seconds)
        return min(algorithm(gemm, profile) for algorithm in algorithms)
    return _tiled_gemm_seconds(gemm, unit, profile) / share


def _tiled_gemm_seconds(gemm: Gemm, unit: str, profile: Profile, tiles: Iterable[Tile] = ()) -> float:
    """Return the seconds of a matrix product by the fastest tile size (and split-k) of the library's.

    ``tiles`` limits the choice, without split-k; by default it is the library's for this unit and card.
    """
    batch, rows, columns, depth, batched, _ = gemm
    model = profile.shared
    simt = unit in ("fp32", "fp64") or profile.emulates(unit)
    splits: tuple[int, ...] = _SPLITS
    if tiles:
        splits = (1,)
    elif batched and simt:
        tiles = _BATCHED_AMPERE if profile.capability >= (8, 0) else _BATCHED_TURING
        splits = (1,)
    else:
        tiles = _SIMT if simt else _TENSOR
        if simt and profile.capability >= (8, 0):
            tiles = tiles[1:]
        tiles = {oriented for tile in tiles for oriented in (tile, tile[::-1])}
    overhead_k = model.prologue_epilogue_k_simt if simt else model.prologue_epilogue_k_tensor
    reduction = model.split_k_simt if simt else model.split_k_tensor
    peak, processors = profile.rates[unit], profile.processors
    if simt and unit != "bf16":  # the emulated bf16 rate was measured under the power limit
        peak *= profile.throttle_most  # the rate without the power limit
    element_bytes = 4 if simt else 2
    side_of_largest = 64 if simt else 256 / 3  # as `side` below, of the largest tile
    half_side = profile.tile_half if simt else model.tile_half_tensor
    shortest = math.inf
    for tile_rows, tile_columns in tiles:
        side = tile_rows * tile_columns / (tile_rows + tile_columns)
        rate = peak * (1 + (half_side / side_of_largest) ** 2) / (1 + (half_side / side) ** 2) / processors
        tile_count = batch * -(-rows // tile_rows) * -(-columns // tile_columns)
        min_waves = max(1.0, model.resident / (tile_rows * tile_columns))
        for split in splits:
            waves = max(-(-tile_count * split // processors), min_waves)
            duration = 2 * tile_rows * tile_columns * (depth / split + overhead_k) * waves / rate
            if simt:
                duration = profile.throttled(duration)
            if split > 1:
                partial_bytes = (split + 1) * element_bytes * batch * rows * columns
                duration += reduction + partial_bytes / profile.memory_rate
            shortest = min(shortest, duration)
    return shortest


def _implicit_gemm_seconds(gemm: Gemm, profile: Profile) -> float:
    """Return the seconds of a 3 x 3 convolution by implicit GEMM, with two blocks at a time per processor."""
    blocks = math.ceil(gemm.rows / 128) * math.ceil(gemm.columns / 32)
    flops = 2 * 128 * 32 * (gemm.depth + profile.shared.prologue_epilogue_k_simt)
    return _waves_seconds(blocks, flops, profile, 2) / profile.convolution_share


def _winograd_f2x2_fused_seconds(gemm: Gemm, profile: Profile) -> float:
    """Return the seconds of a 3 x 3 convolution by fused Winograd F(2x2, 3x3).

    It needs 16 multiplications per 2 x 2 outputs and input channel; a thread block computes 8 x 16 output
    pixels of 32 output channels. The filter transform, a kernel of its own, is included with its launch; the
    ``kernel_floor`` of the main kernel is added by `seconds`.
    """
    images, height, width = gemm.plane
    in_channels, out_channels = gemm.depth // 9, gemm.columns
    blocks = images * math.ceil(height / 8) * math.ceil(width / 16) * math.ceil(out_channels / 32)
    flops = 2 * 16 * 32 * 32 * (in_channels + profile.shared.prologue_epilogue_k_winograd)
    duration = _waves_seconds(blocks, flops, profile) / profile.winograd_share
    return (
        duration
        + profile.kernel_floor
        + _winograd_transform_seconds((9 + 16) * in_channels * out_channels, profile)
    )


def _winograd_f4x4_nonfused_seconds(gemm: Gemm, profile: Profile) -> float:
    """Return the seconds of a 3 x 3 convolution by Winograd F(4x4, 3x3) as a batch of 36 matrix products.

    The transforms of input, filter and output, three kernels, are included with their ``kernel_floor``.
    """
    images, height, width = gemm.plane
    patches = images * math.ceil(height / 4) * math.ceil(width / 4)
    in_channels, out_channels = gemm.depth // 9, gemm.columns
    tile_columns = 128 if profile.capability >= (8, 0) else 64
    blocks = 36 * math.ceil(patches / 128) * math.ceil(out_channels / tile_columns)
    flops = 2 * 128 * tile_columns * (in_channels + profile.shared.prologue_epilogue_k_winograd)
    duration = _waves_seconds(blocks, flops, profile) / profile.winograd_share
    pixels = images * height * width
    elements_moved = (
        pixels * (in_channels + out_channels)
        + 36 * patches * (in_channels + out_channels)
        + (9 + 36) * in_channels * out_channels
    )
    return duration + 3 * profile.kernel_floor + _winograd_transform_seconds(elements_moved, profile)


def _waves_seconds(blocks: int, flops: float, profile: Profile, at_once: int = 1) -> float:
    """Return the seconds of thread blocks of ``flops`` each, ``at_once`` at a time on each processor."""
    waves = math.ceil(blocks / (profile.processors * at_once))
    # As in `_tiled_gemm_seconds`; the effect of the power limit is in the shares.
    rate = profile.rates["fp32"] * profile.throttle_most
    return waves * at_once * flops * profile.processors / rate


def _winograd_transform_seconds(elements: float, profile: Profile) -> float:
    """Return the seconds of Winograd's transforms, which read and write this many float32 elements."""
    return 4 * elements / (profile.memory_rate * profile.shared.winograd_transform)
