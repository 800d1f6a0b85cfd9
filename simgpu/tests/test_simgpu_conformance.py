"""The simulated device returns what the CPU returns, and the comparison sees where it does not."""

import os
import re
import time

import conformance
import pytest
import torch
from conformance import Outcome, Sample, Worker, judge
from support import TABLE

import simgpu

OTHER = "cpu:0"  # stands for a device under test, so that a fault can be put into it


def judge_function(function, *args, backward=False):
    """Judge one sample of ``function(device, *inputs)``."""

    def call(device):
        inputs = conformance.to_device(args, device)
        outputs = function(device, *inputs)
        return inputs, outputs, outputs

    return judge("case", [Sample("sample 1", call, backward)], OTHER)


@pytest.mark.parametrize(
    ("words", "operators", "modules"),
    [
        pytest.param(["--sample"], 180, 30, id="sample", marks=pytest.mark.slow),
        pytest.param([], 680, 110, id="all", marks=pytest.mark.everywhere),
    ],
)
def test_pytorchs_operators_and_modules_equal_the_cpu(words, operators, modules, capfd, record_property):
    assert not simgpu.unavailable_reason()
    status = conformance.main([*words, "--jobs", "2"])
    out = capfd.readouterr().out
    for line in re.findall(r"^\w+: \d+ of .*", out, re.MULTILINE):
        title = f"the simulated device against the CPU, torch {torch.__version__}"
        record_property(TABLE + title, f"{' '.join(words) or '--all':<8} {line}")
    assert status == 0, out
    ran = {family: int(count) for family, count in re.findall(r"(\w+): (\d+) of", out)}
    assert ran["operators"] >= operators and ran["modules"] >= modules, out


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
    outcome = judge_function(lambda device, x: fault(x) if device == OTHER else x, x)
    assert outcome.verdict == "differs"
    assert any(word in outcome.message for word in reason.split("|")), outcome.message


def test_a_wrong_gradient_a_wrong_write_and_rounding_are_told_apart():
    def double(device, x):
        return x * 2 if device == "cpu" else x.detach() * 2 + (x - x.detach()) * 3

    def fill(device, x):
        return x.fill_(7.0).sum().item() if device == "cpu" else 7.0 * x.numel()

    outcome = judge_function(double, torch.ones(3, requires_grad=True), backward=True)
    assert outcome.verdict == "differs" and "backward" in outcome.message
    assert judge_function(fill, torch.zeros(3)).verdict == "differs"
    outcome = judge_function(lambda device, x: x * (1 + 2e-7 * (device == OTHER)), torch.ones(3))
    assert outcome.verdict == "close" and outcome.good


def _fragile(connection):
    """Run a worker that crashes or hangs at cases of these names."""
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
    text, passed = conformance.report("operators", outcomes)
    assert "4 of 4" in text and "50.00 %" in text and not passed
    assert "crashes  crash: the process ended with 3" in text
