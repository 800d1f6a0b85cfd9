"""The simulated device returns what the CPU returns, and the comparison sees where it does not."""

import os
import re
import time

import conformance
import pytest
import torch
from conformance import Outcome, Trial, Worker, difference, judge
from support import TABLE

import simgpu

OTHER = "cpu:0"  # stands for a device under test, so that a fault can be put into it


def trial(function, *args, backward=False):
    """A sample whose function is told on which device it works."""

    def call(device):
        placed = conformance.place(args, device)
        returned = function(device, *placed)
        return placed, returned, returned

    return Trial("sample 1", call, backward)


def judged(function, *args, backward=False):
    return judge("case", [trial(function, *args, backward=backward)], OTHER)


@pytest.mark.parametrize(
    ("words", "operators", "modules"),
    [
        pytest.param(["--sample"], 180, 30, id="sample", marks=pytest.mark.slow),
        pytest.param([], 680, 110, id="all", marks=pytest.mark.everywhere),
    ],
)
def test_pytorchs_operators_and_modules_equal_the_cpu(
    words, operators, modules, capfd, record_property
):
    assert not simgpu.problem()
    status = conformance.main([*words, "--jobs", "2"])
    out = capfd.readouterr().out
    for line in re.findall(r"^\w+: \d+ of .*", out, re.MULTILINE):
        title = f"the simulated device against the CPU, torch {torch.__version__}"
        record_property(TABLE + title, f"{' '.join(words) or '--all':<8} {line}")
    assert status == 0, out
    ran = {family: int(count) for family, count in re.findall(r"(\w+): (\d+) of", out)}
    assert ran["operators"] >= operators and ran["modules"] >= modules, out


class Asking:
    """An operator whose samples depend on the GPU, or are at fault."""

    name = full_name = "asking"
    supports_autograd = False
    supported_dtypes = staticmethod(lambda device: {torch.float32})

    def __init__(self, sentence):
        self.sentence = sentence

    def sample_inputs(self, device, dtype, requires_grad):
        raise RuntimeError(self.sentence)


def test_samples_that_only_a_gpu_could_name_are_not_run():
    asking = Asking("Found no NVIDIA driver on your system.")
    assert judge("asking", conformance.operator_trials(asking)).verdict == "not run"
    with pytest.raises(RuntimeError, match="at fault"):
        judge("asking", conformance.operator_trials(Asking("at fault")))


def test_equal_results_are_equal():
    x = torch.randn(4, 3, requires_grad=True)
    outcome = judged(lambda device, x: torch.dropout(x * 2, 0.5, True), x, backward=True)
    assert (outcome.verdict, outcome.samples) == ("equal", 1)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda x: x + 1, "not equal|not close"),
        (lambda x: x.double(), "dtype"),
        (lambda x: x[:1], "shape"),
        (lambda x: [x], "structure"),
        (lambda x: x.sum().item(), "not a tensor"),
        (lambda x: x.to("meta"), "lies on meta"),
        (lambda x: x.detach(), "requires_grad"),
        (lambda x: x.to_sparse(), "layout"),
    ],
)
def test_a_wrong_result_is_refused(fault, reason):
    x = torch.ones(3, requires_grad=True)
    outcome = judged(lambda device, x: fault(x) if device == OTHER else x, x)
    assert outcome.verdict == "differs"
    assert any(word in outcome.message for word in reason.split("|")), outcome.message


def test_a_wrong_gradient_a_wrong_write_and_rounding_are_told_apart():
    def double(device, x):
        return x * 2 if device == "cpu" else x.detach() * 2 + (x - x.detach()) * 3

    def fill(device, x):
        return x.fill_(7.0).sum().item() if device == "cpu" else 7.0 * x.numel()

    outcome = judged(double, torch.ones(3, requires_grad=True), backward=True)
    assert outcome.verdict == "differs" and "backward" in outcome.message
    assert judged(fill, torch.zeros(3)).verdict == "differs"
    outcome = judged(lambda device, x: x * (1 + 2e-7 * (device == OTHER)), torch.ones(3))
    assert outcome.verdict == "close" and outcome.good


def test_nan_equals_nan_and_strides_do_not_count():
    x = torch.full((2, 3), float("nan"))
    assert difference([x, float("nan")], [x.T.contiguous().T, float("nan")], "cpu") == ""


def test_what_one_device_refuses_is_said():
    def refuse(device, x, where):
        if device == where:
            raise NotImplementedError("not on this device")
        return x

    x = torch.zeros(1)
    assert judged(lambda device, x: refuse(device, x, "cpu"), x).verdict == "differs"
    outcome = judged(lambda device, x: refuse(device, x, OTHER), x)
    assert outcome.verdict == "raises" and "not on this device" in outcome.message
    outcome = judged(lambda device, x: x @ torch.zeros(5, 5), torch.zeros(3))
    assert outcome.verdict == "not run", "the CPU refuses it, and so does the device"


def test_a_copy_keeps_strides_sharing_and_gradients():
    x = torch.randn(4, 6, requires_grad=True)
    odd = torch.randn(8, 6)[::2]
    (a, b), device = conformance.place([(x, x), torch.device("cpu")], "cpu:0")
    moved = conformance.place(odd, "cpu:0")
    assert a is b and a.is_leaf and a.requires_grad and a is not x
    assert device == torch.device("cpu:0")
    assert moved.stride() == odd.stride() and torch.equal(moved, odd)


def _fragile(connection):
    connection.send({"operators": ["fine", "crash", "hang", "fine again"]})
    while name := connection.recv():
        if name == "crash":
            os._exit(3)
        if name == "hang":
            time.sleep(600)
        connection.send(Outcome(name, "equal", 1))


@pytest.mark.slow
def test_a_case_that_crashes_or_hangs_is_one_line_of_the_report():
    workers = [Worker(_fragile, limit=2.0)]
    try:
        outcomes = conformance.run(["fine", "crash", "hang", "fine again"], workers)
    finally:
        workers[0].stop()
    assert [o.verdict for o in outcomes] == ["equal", "crashes", "hangs", "equal"]
    text = conformance.report("operators", outcomes)
    assert "4 of 4" in text and "50.00 %" in text
    assert "crashes  crash: the process ended with 3" in text


def test_the_goal_and_the_reasons_decide(monkeypatch):
    good = [Outcome(f"op{i}", "equal", 1) for i in range(299)]
    bad = Outcome("odd", "differs", 1, "sample 1")
    assert conformance.passed([*good, Outcome("skipped", "not run")])
    assert not conformance.passed([*good, bad])  # no reason on record
    monkeypatch.setitem(conformance.REASONS, "odd", "because")
    assert conformance.passed([*good, bad])
    assert "because" in conformance.report("operators", [*good, bad])
    assert not conformance.passed([*good[:100], bad])  # below the goal
    healed = conformance.report("operators", [*good, Outcome("odd", "equal", 1)])
    assert "no longer an exception: odd" in healed
