"""The ladder of lesson 10 as it is recorded: its rungs, its images, its turns."""

import argparse

import pytest
import torch

from tools.records import ladder, lesson10
from tools.records.experiments import REGISTRY, LeftOut, Point, Unsuitable, run_points

CPU = torch.device("cpu")


def found_for(experiment, **parameters):
    ((_, found),) = run_points([Point(REGISTRY[experiment], parameters, CPU)])
    return found


def test_two_things_take_turns_and_the_first_round_is_not_counted():
    order = []

    def a():
        order.append("a")
        return 100.0 if len(order) < 3 else 2.0

    def b():
        order.append("b")
        return 100.0 if len(order) < 3 else 0.5

    assert ladder.in_turns(a, b, rounds=5) == ([2.0] * 5, [0.5] * 5)
    assert "".join(order) == "ba" + "ab" + "ba" + "ab" + "ba" + "ab"


def test_a_turn_has_as_many_steps_as_fill_its_time(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(ladder, "perf_counter", lambda: clock[0])

    def step():
        clock[0] += 0.01

    turn = ladder.calibrated(step, CPU, seconds=0.5)
    begin = clock[0]
    assert turn() == pytest.approx(0.01)
    assert clock[0] - begin == pytest.approx(0.5)


def test_a_rung_keeps_those_below_it_that_the_device_has(monkeypatch):
    monkeypatch.setattr(ladder, "abilities", lambda device: argparse.Namespace(tf32=False, bf16=True))
    assert ladder.options_up_to(CPU, "none") == ladder.LoopOptions()
    assert ladder.options_up_to(CPU, "no .item()") == ladder.LoopOptions(on_device=True, ask=False)
    top = ladder.options_up_to(CPU, "16 bits")
    assert top.half and top.channels_last and top.large_batch and top.fused and not top.ask
    assert not top.tf32 and not top.compiled
    for rung, why in (
        ("TF32", "TF32 units"),
        ("CUDA graphs", "no CUDA graphs"),
        ("compiled", "accelerators only"),
    ):
        with pytest.raises(Unsuitable, match=why):
            ladder.options_up_to(CPU, rung)


def test_16_bits_need_units_for_them(monkeypatch):
    monkeypatch.setattr(ladder, "abilities", lambda device: argparse.Namespace(tf32=False, bf16=False))
    with pytest.raises(Unsuitable, match="no units for 16 bits"):
        ladder.options_up_to(CPU, "16 bits")
    assert not ladder.lacks(torch.device("cuda"), "16 bits")  # float16 with a scaler


def test_the_networks_cost_what_the_records_say():
    assert ladder.flops_an_image("airbench") == pytest.approx(0.708e9, rel=0.01)
    assert ladder.flops_an_image("tutorial") == pytest.approx(3.2e6, rel=0.01)


def test_each_image_is_shifted_and_flipped_on_its_own():
    torch.manual_seed(0)
    one = torch.arange(2 * 12 * 12, dtype=torch.int32).reshape(1, 2, 12, 12)
    out = ladder.random_shift(one.expand(2000, -1, -1, -1), side=8)
    assert out.shape == (2000, 2, 8, 8) and out.dtype == torch.int32
    windows = {
        (top, left, flip): (one[0, :, top : top + 8, left : left + 8].flip(-1 if flip else ()))
        for top in range(5)
        for left in range(5)
        for flip in (False, True)
    }
    seen = [next(place for place, window in windows.items() if torch.equal(window, image)) for image in out]
    assert set(seen) == set(windows)
    assert all(20 <= seen.count(place) <= 70 for place in windows)


@pytest.mark.parametrize("shifted", [False, True])
def test_a_slow_and_a_fast_loop_get_the_same_images(shifted, monkeypatch):
    monkeypatch.setattr(ladder, "MARGIN", 0)  # then a shift changes nothing but the side
    network = ladder.Network(ladder.tutorial_cnn, 32, 8, shifted, small=4, large=4, larger=4)
    x, y = ladder.images(8)

    def one_pass(batches):
        found = torch.cat([images for images, _ in (next(batches), next(batches))])
        return sorted(images.sum((1, 2)).tolist() for images in found.double())

    slow = one_pass(ladder.loader_batches(network, x, y, 4, CPU))
    fast = one_pass(ladder.sliced_batches(network, x, y, 4, CPU, torch.channels_last))
    assert torch.tensor(slow).sub(torch.tensor(fast)).abs().max() < 1e-3


@pytest.mark.parametrize("rung", ["none", "channels_last"])
def test_a_step_of_the_ladder_trains(rung):
    model = ladder.tutorial_cnn()
    network = ladder.Network(lambda: model, 32, 64, False, small=4, large=16, larger=16)
    step, batch = ladder.training(network, ladder.options_up_to(CPU, rung), CPU)
    assert batch == (4 if rung == "none" else 16)
    before = [p.detach().clone() for p in model.parameters()]
    step()
    assert all(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    fast = rung == "channels_last"
    assert model[3].weight.is_contiguous(memory_format=torch.channels_last) is fast


def test_resnet50_is_left_to_accelerators():
    why = found_for("ladder", network="resnet50", rung="none")
    assert isinstance(why, LeftOut) and "needs an accelerator" in why.reason and not why.failed


def test_a_rung_is_measured_against_the_slow_script(monkeypatch):
    monkeypatch.setattr(
        ladder, "make_turn", lambda network, options, device: lambda: 1e-3 if options.ask else 2.5e-4
    )
    monkeypatch.setattr(lesson10, "best_flops", lambda device, unit: 1e11)
    found = found_for("ladder", network="tutorial", rung="no .item()")
    by_name = {m.quantity: m for m in found}
    assert by_name["speed-up"].median == pytest.approx(4.0) and by_name["speed-up"].n == 5
    assert by_name["rate"].median == pytest.approx(4000)
    done = 4000 * ladder.flops_an_image("tutorial")
    assert by_name["share of the matmul rate"].median == pytest.approx(done / 1e11)
