"""How long kernels take: waves of tiles, splits, caches, rows, convolutions, heat."""

from __future__ import annotations

import random

import pytest
import torch

from simgpu import cost, latency, profiles
from simgpu.cost import Gemm, Work

aten = torch.ops.aten
A100, T4 = profiles.load("A100"), profiles.load("T4")


def of_product(*shape, unit="fp16", profile=A100, batched=False, plane=None, kind="product"):
    """Return the modelled seconds of a GEMM of shape (batch, rows, columns, depth)."""
    product = Gemm(*shape, batched, plane)
    return latency.seconds(Work(1.0, 1.0, unit, kind, (product,)), profile)


def work_of(op, *args):
    """Run an operator, and return its `Work`."""
    return cost._work(op, args, {}, op(*args))


def of_bytes(count, kind="stream", elements=1.0, profile=A100):
    """Return the modelled seconds of a kernel that moves so many bytes, without ``kernel_floor``."""
    return latency.seconds(Work(elements, count, "fp32", kind), profile) - profile.kernel_floor


def test_one_tile_more_than_there_are_processors_costs_a_whole_wave():
    """At this width only the largest tiles pay: one row of them a processor, then one more."""
    side, depth = 256, 4096
    full = of_product(1, A100.processors * 128, side, depth)
    more = of_product(1, A100.processors * 128 + 1, side, depth)
    again = of_product(1, 2 * A100.processors * 128, side, depth)
    assert more > 1.3 * full
    assert again < 1.5 * more


def test_a_longer_side_never_takes_less_time():
    drawn = random.Random(16)
    for _ in range(300):
        shape = [drawn.randint(1, 5), *(drawn.randint(1, 3000) for _ in range(3))]
        unit, card = drawn.choice(["fp32", "fp16"]), drawn.choice([A100, T4])
        longer = list(shape)
        longer[drawn.randrange(4)] += drawn.randint(1, 500)
        assert of_product(*longer, unit=unit, profile=card) >= of_product(*shape, unit=unit, profile=card), (
            shape,
            longer,
            unit,
        )


@pytest.mark.parametrize("unit", ["fp32", "fp16"])
def test_few_tiles_of_great_depth_are_split_among_the_processors(unit):
    """On one processor the time would grow as the depth does."""
    deep, shallow = of_product(1, 64, 64, 65536, unit=unit), of_product(1, 64, 64, 4096, unit=unit)
    assert deep < 12 * shallow  # for 16 times the depth


def test_small_products_reach_a_small_part_of_the_rate_and_tensor_cores_help_large_ones():
    def rate(n, unit):
        return 2 * n**3 / of_product(1, n, n, n, unit=unit)

    assert rate(128, "fp16") < 0.02 * A100.rates["fp16"]
    assert rate(8192, "fp16") > 0.8 * A100.rates["fp16"]
    assert rate(8192, "fp16") > 8 * rate(8192, "fp32")
    assert rate(128, "fp16") < 6 * rate(128, "fp32")


def test_bytes_are_faster_from_the_cache_and_no_faster_beyond_it():
    beyond = 4 * A100.l2
    assert of_bytes(beyond) == pytest.approx(beyond / A100.memory_rate)
    assert of_bytes(2 * beyond) == pytest.approx(2 * of_bytes(beyond))
    small = A100.l2 / 100
    assert of_bytes(small) < 0.7 * small / A100.memory_rate


@pytest.mark.parametrize("kind", ["reduce", "softmax", "gather"])
def test_rows_take_longer_than_elements_and_few_bytes_for_many_numbers_do_not_help(kind):
    count = 4 * A100.l2
    assert of_bytes(count, kind) > 1.05 * of_bytes(count)
    many = of_bytes(count, kind, elements=count)  # one byte each
    assert many > 1.5 * of_bytes(count, kind)
    assert of_bytes(64, kind) > of_bytes(64)


def convolve(size, taps, stride=1, groups=1, profile=A100, dtype=torch.float32, channels=128):
    """Return the `Work` of a convolution of 32 images with a ``taps`` x ``taps`` kernel."""
    x = torch.empty(32, channels, size, size, dtype=dtype, device="meta")
    w = torch.empty(channels, channels // groups, taps, taps, dtype=dtype, device="meta")
    args = (x, w, None, [stride] * 2, [taps // 2] * 2, [1, 1], False, [0, 0], groups)
    unit = "fp32" if dtype is torch.float32 else "fp16"
    return work_of(aten.convolution.default, *args)._replace(unit=unit)


def test_a_convolution_of_3_by_3_has_a_shorter_way_in_float32_at_stride_1_only():
    short, long = convolve(56, 3), convolve(112, 3, stride=2)
    assert short.flops == long.flops and short.products[0].plane and not long.products[0].plane
    # Without its shorter ways it would take as long as the other, which reads four times the pixels.
    alone = short._replace(products=(short.products[0]._replace(plane=None),))
    assert latency.seconds(short, A100) < 0.7 * latency.seconds(alone, A100)
    half = convolve(56, 3, dtype=torch.float16)
    plain = half._replace(products=(half.products[0]._replace(plane=None),))
    assert latency.seconds(half, A100) == latency.seconds(plain, A100)


@pytest.mark.parametrize("card", [A100, T4])
def test_a_convolution_of_3_by_3_goes_in_waves_over_the_processors(card):
    """An image is one block here: with one more than there are processors, most of them wait."""

    def images(count):
        shape = 1, count * 8 * 16, 32, 9 * 256
        return of_product(*shape, unit="fp32", profile=card, plane=(count, 8, 16), kind="convolution")

    full = images(card.processors)
    assert images(card.processors // 2) > 0.9 * full
    assert images(card.processors + 1) > 1.2 * full
    took = [images(count) for count in range(1, 3 * card.processors)]
    assert took == sorted(took)


def added(a, b, card=A100):
    """Return the modelled seconds of an addition."""
    return latency.seconds(work_of(aten.add.Tensor, a, b), card)


@pytest.mark.parametrize(("dtype", "least"), [(torch.bfloat16, 1.4), (torch.float32, 1.0)])
def test_tensors_that_lie_differently_take_longer_where_elements_are_few_bytes(dtype, least):
    x, y = (torch.empty(512, 64, 128, 128, device="meta", dtype=dtype) for _ in range(2))
    assert least * added(x, y) <= added(x, y.transpose(-1, -2)) < 2 * added(x, y)
    turned = [t.transpose(1, 2) for t in (x, y)]
    assert added(*turned) == added(x, y)  # both in the same way
    assert added(x, x[0]) > least * added(x, torch.ones((), dtype=dtype))


def test_rows_that_begin_between_the_loads_of_tensor_cores_are_slow():
    def scores(words, dtype):
        x, w = (torch.empty(n, 768, device="meta", dtype=dtype) for n in (8192, words))
        return latency.seconds(work_of(aten.mm.default, x, w.t()), A100)

    assert scores(50257, torch.bfloat16) > 3 * scores(50304, torch.bfloat16)
    assert scores(50257, torch.float32) == pytest.approx(scores(50304, torch.float32), rel=0.01)


def test_a_convolution_of_1_x_1_of_images_as_they_lie_is_a_product_of_each():
    def work(layout):
        x = torch.empty(32, 1024, 14, 14).to(memory_format=layout)
        weight = torch.empty(256, 1024, 1, 1).to(memory_format=layout)
        args = (x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
        out = torch.empty(32, 256, 14, 14)
        return cost._work(aten.convolution.default, args, {}, out)._replace(unit="tf32")

    second, innermost = work(torch.contiguous_format), work(torch.channels_last)
    assert second.per_image == (Gemm(32, 196, 256, 1024),) and innermost.per_image == ()
    # 75 to 78 µs in a trace of an A100 (facebookresearch/HolisticTraceAnalysis)
    assert 60e-6 < latency.seconds(second, A100) < 90e-6
    assert latency.seconds(innermost, A100) < latency.seconds(second, A100) / 1.5


def test_a_batch_norm_has_one_block_a_channel_where_channels_lie_second():
    def took(channels, dtype, layout=torch.contiguous_format):
        x = torch.empty(32, channels, 112, 112, dtype=dtype, memory_format=layout)
        weight = torch.ones(channels)
        args = (x, weight, weight, weight.clone(), weight.clone(), True, 0.1, 1e-5)
        out = torch.empty_like(x), weight, weight
        return latency.seconds(cost._work(aten.native_batch_norm.default, args, {}, out), A100)

    # 386 µs in a trace of an A100 (facebookresearch/HolisticTraceAnalysis)
    assert 350e-6 < took(64, torch.float32) < 420e-6
    assert took(64, torch.float16) == took(64, torch.float32)
    assert took(64, torch.float16, torch.channels_last) < took(64, torch.float16) / 2
    assert took(128, torch.float32) < 1.5 * took(64, torch.float32)


def test_a_t4_gets_hot_and_an_a100_does_not():
    def rate(n, card):
        return 2 * n**3 / of_product(1, n, n, n, unit="fp32", profile=card)

    assert rate(1024, T4) > 1.1 * rate(8192, T4) > 0.9 * T4.rates["fp32"]
    assert rate(1024, A100) < rate(8192, A100)
    assert T4.throttled(1e-5) == 1e-5 and A100.throttled(1.0) == 1.0


def test_every_figure_that_cards_share_has_a_source():
    model = profiles.shared()
    for name in model.__dataclass_fields__:
        if name != "sources":
            assert getattr(model, name) > 0 and len(model.sources[name]) > 30, name
