"""Lesson 05: its checks judge what answers do, and mixed precision on the simulated device is CUDA's."""

from __future__ import annotations

import ast
import math
from contextlib import nullcontext
from types import SimpleNamespace

import matplotlib.pyplot as plt
import nbformat
import pytest
import torch
from answers import wrong
from harness import NOTEBOOKS, code_cells
from torch import nn
from torch.nn import functional as F

import simgpu
from course_lessons.lesson05.accumulate import accumulate
from course_lessons.lesson05.amp_step import amp_step
from course_lessons.lesson05.checkpoint import checkpoint
from course_lessons.lesson05.choose_precision import choose_precision
from course_lessons.lesson05.drawings import scaled_gradients, share_lost
from course_lessons.lesson05.gains import Gains
from course_lessons.lesson05.logits_loss import logits_loss
from course_lessons.lesson05.networks import digits_on, mlp, small_cnn
from course_lessons.shared.checking import save_and_load
from course_lessons.shared.edited import edited
from course_lessons.shared.precision import gradients_lost, scaling_device, zeroed
from course_utils import measure
from course_utils.devices import abilities
from course_utils.exercises import lesson

EX = lesson("05")
HALF, BF16 = torch.float16, torch.bfloat16


@pytest.fixture
def sim(simulated):
    return simulated.first()


@pytest.mark.parametrize(
    ("wait", "seen"),
    [
        (lambda loss, scaler: loss.cpu(), "cpu()"),
        (lambda loss, scaler: loss.to("cpu"), "to()"),
        (lambda loss, scaler: loss.to(device="cpu"), "to()"),
        (lambda loss, scaler: torch.from_numpy(loss.numpy()), "numpy()"),
        (lambda loss, scaler: loss if loss > 0 else -loss, "bool()"),
        (lambda loss, scaler: torch.accelerator.synchronize() or loss, "synchronize()"),
        (lambda loss, scaler: torch.cuda.synchronize() or loss, "synchronize()"),
        (lambda loss, scaler: loss * scaler.get_scale() / scaler.get_scale(), "get_scale()"),
    ],
    ids=["cpu", "to", "to by name", "numpy", "if", "accelerator", "cuda", "get_scale"],
)
def test_a_step_that_waits_is_told_by_which_call(wait, seen):
    def answer(model, x, y, loss_fn, optimizer, scaler, dtype):
        loss = amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)
        return wait(loss, scaler)

    result = EX.amp_step.result(answer)
    assert (result.outcome, result.diagnosis) == ("not_yet", "waits")
    assert dict(result.details)["Seen"] == seen


def test_a_scaler_called_in_the_wrong_order_is_quoted():
    twice = edited(amp_step, {"scaler.update()": "scaler.update()\nscaler.update()"})
    result = EX.amp_step.result(twice)
    assert result.outcome == "not_yet"
    assert "No inf checks were recorded" in dict(result.details)["Seen"]


@pytest.mark.slow
def test_checks_leave_the_settings_of_the_process_alone():
    def settings():
        return (
            torch.get_num_threads(),
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.autocast.__init__,
            torch.amp.GradScaler.__init__,
            nn.BCEWithLogitsLoss.__init__,
            torch.cuda.is_bf16_supported,
            torch.cuda.synchronize,
            torch.accelerator.synchronize,
            simgpu.enabled(),
        )

    before = settings()
    for exercise in EX:
        exercise.result(exercise.reference)
        for answer in wrong(exercise).values():
            exercise.result(answer)
    assert settings() == before


# --- the references on a device


def test_choose_precision_for_simulated_cards(sim):
    profile = simgpu.profile(sim).key
    try:
        for card, expected in (("T4", (HALF, True)), ("A100", (BF16, False))):
            simgpu.enable(card)
            assert choose_precision(abilities(sim)) == expected
    finally:
        simgpu.enable(profile)


@pytest.mark.parametrize(
    ("arch", "bf16", "tf32"),
    [
        ("gfx90a:sramecc+:xnack-", True, False),  # MI250X
        ("gfx942:sramecc+:xnack-", True, True),  # MI300X
        ("gfx1030", False, False),  # RX 6800
        ("gfx1100", True, False),  # RX 7900
    ],
)
def test_an_amd_gpu_has_the_units_that_its_generation_has(arch, bf16, tf32, monkeypatch):
    properties = SimpleNamespace(name="AMD", total_memory=2**34, gcnArchName=arch, major=9, minor=0)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device=None: properties)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    can = abilities("cuda")
    assert (can.bf16, can.tf32, can.capability) == (bf16, tf32, "")


@pytest.mark.parametrize("units", [True, False])
def test_an_intel_gpu_is_asked_for_its_units(units, monkeypatch):
    can_do = ("has_bfloat16_conversions", "has_subgroup_matrix_multiply_accumulate")
    properties = SimpleNamespace(name="Intel", total_memory=2**34, **dict.fromkeys(can_do, units))
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda device: properties)
    can = abilities("xpu")
    assert (can.bf16, can.tf32) == (units, units)


def network(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)


def training(device, scale=2.0**10):
    model = network(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, optimizer, torch.amp.GradScaler(torch.device(device).type, init_scale=scale)


def examples(device, n=8):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 6, generator=generator)
    return x.to(device), torch.randint(0, 3, (n,), generator=generator).to(device)


def weights(model):
    return torch.cat([p.detach().flatten().cpu() for p in model.parameters()])


def test_amp_step_trains_and_skips_on_the_simulated_device(sim):
    model, optimizer, scaler = training(sim)
    x, y = examples(sim)
    first = amp_step(model, x, y, F.cross_entropy, optimizer, scaler, HALF)
    for _ in range(20):
        last = amp_step(model, x, y, F.cross_entropy, optimizer, scaler, HALF)
    assert last.device.type == "sim" and not last.requires_grad
    assert last < 0.7 * first
    before = weights(model)
    amp_step(model, x * 1e6, y, F.cross_entropy, optimizer, scaler, HALF)
    assert torch.equal(weights(model), before)
    assert scaler.get_scale() == 2.0**9


def test_accumulate_equals_the_large_batch_on_the_simulated_device(sim):
    x, y = examples(sim, 10)
    pieces = list(zip(x.split((6, 1, 3)), y.split((6, 1, 3)), strict=True))
    found = []
    for batches in ([(x, y)], pieces):
        model, optimizer, scaler = training(sim)
        accumulate(model, batches, F.cross_entropy, optimizer, scaler, HALF)
        found.append(weights(model) - weights(network("cpu")))
    torch.testing.assert_close(*found, rtol=0.01, atol=1e-5)


def test_a_checkpoint_brings_the_scaler_back_on_the_simulated_device(sim):
    model, optimizer, scaler = training(sim)
    scaler.set_growth_interval(3)
    x, y = examples(sim)
    for factor in (1, 1e6, 1, 1):
        amp_step(model, x * factor, y, F.cross_entropy, optimizer, scaler, HALF)
    state = save_and_load(checkpoint(model, optimizer, scaler))
    again = training(sim)
    for part, name in zip(again, ("model", "optimizer", "scaler"), strict=True):
        part.load_state_dict(state[name])
    for run in ((model, optimizer, scaler), again):
        amp_step(run[0], x, y, F.cross_entropy, *run[1:], HALF)
    assert scaler.get_scale() == again[2].get_scale() == 2.0**10  # halved, and doubled again
    assert torch.equal(weights(model), weights(again[0]))


def test_logits_loss_is_allowed_where_bce_is_refused(sim):
    logits, targets = torch.tensor([200.0, -3.0], device=sim), torch.tensor([0.0, 1.0], device=sim)
    with torch.autocast("sim", dtype=HALF):
        half = logits.half()
        assert logits_loss(half, targets).item() == pytest.approx(101.524, rel=1e-4)
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(half.sigmoid(), targets.half())


def test_float16_is_shown_where_a_scaler_works(sim):
    assert scaling_device(sim) == sim
    assert scaling_device(torch.device("cpu")).type == "sim"


def lessons_step():
    """Return the function train_step as the notebook defines it."""
    cells = code_cells(nbformat.read(NOTEBOOKS / "05_mixed_precision.ipynb", as_version=4))
    (source,) = (cell.source for cell in cells if "def train_step(" in cell.source)
    (step,) = (n for n in ast.parse(source).body if getattr(n, "name", "") == "train_step")
    names = {"torch": torch, "F": F}
    exec(ast.unparse(step), names)
    return names["train_step"]


@pytest.mark.parametrize("dtype", [HALF, torch.float32])
def test_the_lessons_own_step_is_the_exercises_step(sim, dtype):
    x, y = examples(sim)
    train_step, found = lessons_step(), []
    for own in (True, False):
        model, optimizer, _ = training(sim)
        scaler = torch.amp.GradScaler("sim", init_scale=2.0**10, enabled=dtype is HALF)
        for factor in (1, 1e6) if dtype is HALF else (1,):
            if own:
                train_step(model, optimizer, scaler, x * factor, y, dtype)
            elif dtype is HALF:
                amp_step(model, x * factor, y, F.cross_entropy, optimizer, scaler, dtype)
            else:
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        found.append((weights(model), scaler.get_scale()))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_the_share_that_float16_loses_is_that_of_the_conversion():
    gradients = torch.tensor([0.0, 2.0**-26, 2.0**-20, 1.0, 2.0**10])
    assert share_lost(gradients, 1.0) == (25, 0)
    assert share_lost(gradients, 2.0**8) == (0, 25)
    assert share_lost(gradients, 2.0**18) == (0, 50)


def test_a_scale_moves_the_histogram_and_not_the_axis():
    gradients = 2.0 ** torch.arange(-36, -20).float()
    figures = [scaled_gradients(gradients, scale)[0] for scale in (1.0, 2.0**16, 2.0**40)]
    assert len({figure.axes[0].get_xlim() for figure in figures}) == 1
    titles = [figure.axes[0].get_title(loc="left") or figure.axes[0].get_title() for figure in figures]
    assert titles[0] == "loss × 1: 75 % lost, 0 % inf"
    assert titles[1] == "loss × 65536: 0 % lost, 0 % inf"
    assert titles[2].startswith("loss × 2^40: 0 % lost, ") and "25 % inf" in titles[2]
    for figure in figures:
        plt.close(figure)


def test_a_step_is_measured_where_the_digits_are(sim):
    gains = Gains(lessons_step(), digits_on(sim))
    sizes, found = gains.speed_up(lambda: mlp(784, 16, 10), [1], HALF)
    assert sizes == [1] and 0 < found[0] < 1  # small work: more launches
    single, mixed = (gains.peak(lambda: small_cnn(4), 64, how) for how in (torch.float32, HALF))
    assert gains.has_meter() and 0 < mixed < single


def test_zeroed_counts_what_was_not_zero_before():
    before = torch.tensor([0.0, 1.0, 2.0, -3.0, 4.0])
    assert zeroed(before, torch.tensor([0.0, 0.0, 5.0, 6.0, 7.0])) == 25
    assert zeroed(before, before) == 0


def test_a_deep_network_loses_more_in_backward_than_by_conversion(sim):
    layers = [part for _ in range(12) for part in (nn.Linear(32, 32), nn.Sigmoid())]
    torch.manual_seed(0)
    net = nn.Sequential(*layers).to(sim)
    x = torch.randn(16, 32, device=sim)
    converted, computed = gradients_lost(net, F.mse_loss, x, torch.zeros_like(x))
    assert 0 < converted < computed
    shallow = nn.Linear(32, 4).to(sim)
    assert gradients_lost(shallow, F.mse_loss, x, torch.zeros(16, 4, device=sim)) == (0, 0)


# --- mixed precision on the simulated device


def test_16_bit_products_add_up_in_float32_and_round_once(sim):
    torch.manual_seed(0)
    a, b, bias = torch.randn(32, 999), torch.randn(999, 32), torch.randn(32)
    x, kernel = torch.randn(2, 32, 9, 9), torch.randn(16, 32, 3, 3)
    cases = {
        "mm": (torch.mm, a, b),
        "addmm": (torch.addmm, bias, a, b),
        "bmm": (torch.bmm, a[None], b[None]),
        "baddbmm": (torch.baddbmm, bias, a[None], b[None]),
        "mv": (torch.mv, a, b[:, 0]),
        "conv2d": (F.conv2d, x, kernel),
        "transposed": (F.conv_transpose2d, x, kernel.transpose(0, 1)),
    }
    for name, (work, *inputs) in cases.items():
        for dtype in (HALF, BF16):
            low = [t.to(dtype) for t in inputs]
            expected = work(*(t.float() for t in low)).to(dtype)
            got = work(*(t.to(sim) for t in low))
            assert got.dtype is dtype, name
            assert torch.equal(got.cpu(), expected), name


def test_the_backward_pass_of_a_convolution_does_too(sim):
    torch.manual_seed(0)
    x, kernel = torch.randn(2, 8, 9, 9).half(), torch.randn(4, 8, 3, 3).half()
    gradients = {}
    for name, inputs in {
        "sim": [t.to(sim) for t in (x, kernel)],
        "cpu": [t.float() for t in (x, kernel)],
    }.items():
        inputs = [t.detach().requires_grad_() for t in inputs]
        F.conv2d(*inputs).sum().backward()
        gradients[name] = [t.grad.cpu().half() for t in inputs]
    assert all(torch.equal(*pair) for pair in zip(*gradients.values(), strict=True))


def test_a_float16_product_overflows_where_float16_ends(sim):
    ones = torch.ones(2, 1, dtype=HALF, device=sim)
    for last, expected in ((15.0, 65504.0), (16.0, math.inf)):
        row = torch.tensor([[65504.0, last]], dtype=HALF, device=sim)
        assert (row @ ones).item() == expected
        image, kernel = row.view(1, 1, 1, 2), ones.view(1, 1, 1, 2)
        assert F.conv2d(image, kernel).item() == expected
    # Half the way a sum may be larger than float16 can be: tensor cores add up in float32.
    row = torch.tensor([[65504.0, 65504.0, -65504.0]], dtype=HALF, device=sim)
    assert (row @ torch.ones(3, 1, dtype=HALF, device=sim)).item() == 65504.0


def test_what_float32_takes_on_the_clock_is_not_charged_for_float16(sim):
    times = {}
    for dtype in (torch.float32, HALF):
        a = torch.ones(2048, 2048, dtype=dtype, device=sim)
        with simgpu.count() as counts:
            a @ a
        assert counts.launches == 1
        times[dtype] = measure(lambda a=a: a @ a, device=sim).median
    assert times[HALF] < times[torch.float32] / 3


MM_REFUSED = "expected mat1 and mat2 to have the same dtype, but got: c10::Half != float"


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda half, full: half @ full, MM_REFUSED),
        (lambda half, full: nn.Linear(4, 4, bias=False, device="sim")(half), MM_REFUSED),
        (
            lambda half, full: nn.Linear(4, 4, device="sim").half()(full),
            "mat1 and mat2 must have the same dtype, but got Float and Half",
        ),
    ],
    ids=["mm", "linear without bias", "linear"],
)
def test_mixed_dtypes_are_refused_in_cudas_words(sim, work, message):
    full = torch.ones(4, 4, device=sim)
    with pytest.raises(RuntimeError) as caught:
        work(full.half(), full)
    assert str(caught.value) == message


def test_a_weight_cast_without_a_graph_does_not_stay_without_one(sim):
    net, x = nn.Linear(4, 3).to(sim), torch.randn(5, 4, device=sim)
    with torch.autocast("sim"):
        with torch.no_grad():
            net(x)
        loss = net(x).float().sum()
    loss.backward()
    assert net.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("calls", "error", "message"),
    [
        ("scale backward unscale_ unscale_", RuntimeError, r"unscale_\(\) has already been called"),
        ("scale backward step unscale_", RuntimeError, r"unscale_\(\) is being called after step"),
        ("scale backward step step", RuntimeError, r"step\(\) has already been called"),
        ("backward step", AssertionError, "Attempted step but _scale is None"),
        ("scale step", AssertionError, "No inf checks were recorded for this optimizer"),
        ("scale backward update", AssertionError, "No inf checks were recorded prior to update"),
    ],
)
def test_a_scaler_refuses_what_it_refuses_on_cuda(sim, calls, error, message):
    """The last call is refused as on CUDA."""
    model, optimizer, scaler = training(sim)
    x, y = examples(sim)
    loss = F.cross_entropy(model(x), y)

    def make(call):
        nonlocal loss
        if call == "scale":
            loss = scaler.scale(loss)
        elif call == "backward":
            loss.backward()
        else:
            getattr(scaler, call)(*([] if call == "update" else [optimizer]))

    *first, last = calls.split()
    for call in first:
        make(call)
    with pytest.raises(error, match=message):
        make(last)


def test_a_scaler_refuses_float16_weights(sim):
    model, optimizer, scaler = training(sim)
    x, y = examples(sim)
    scaler.scale(F.cross_entropy(model.half()(x.half()), y)).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


def test_one_of_two_optimizers_overflows(sim):
    (good, first, scaler), (bad, second, _) = training(sim), training(sim)
    x, y = examples(sim)
    loss = F.cross_entropy(good(x), y) + F.cross_entropy(bad(x), y) * math.inf
    start = weights(good)
    scaler.scale(loss).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert not torch.equal(weights(good), start)
    assert torch.equal(weights(bad), start)
    assert scaler.get_scale() == 2.0**9


@pytest.mark.parametrize("settings", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_every_kind_of_optimizer_skips_an_overflow(sim, settings):
    model, _, scaler = training(sim)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, **settings)
    x, y = examples(sim)
    for factor, moves in ((1.0, True), (math.inf, False), (1.0, True)):
        before = weights(model)
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(weights(model), before) is not moves
        assert weights(model).isfinite().all()
