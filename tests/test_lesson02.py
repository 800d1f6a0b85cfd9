"""Lesson 02: its ledger adds up, its chart and its errors say what the text says, its checks judge what answers do."""

from __future__ import annotations

import gc
import re
import statistics
from itertools import pairwise
from typing import NamedTuple

import nbformat
import numpy as np
import pytest
import torch
from harness import NOTEBOOKS, code_cells
from support import skip
from torch import nn
from torch.nn import functional as F

from course_utils import drawings, expect_error, plots, simgpu
from course_utils.exercises import lesson
from course_utils.exercises.core import same
from course_utils.timing import seconds

EX = lesson("02")


@pytest.fixture
def sim():
    if problem := simgpu.problem():
        skip(problem, until="2027-11-30")
    return torch.device("sim:0") if simgpu.enabled() else simgpu.enable()


def cell(*needed):
    nb = nbformat.read(NOTEBOOKS / "02_moving_data.ipynb", as_version=4)
    sources = [cell.source for cell in code_cells(nb)]
    (found,) = [source for source in sources if all(text in source for text in needed)]
    return found


@pytest.fixture
def lab(sim, monkeypatch):
    """The names that the lesson's cells use, on the simulated device; its figures are kept."""
    shown = []
    monkeypatch.setattr(drawings, "present", lambda fig, alt: shown.append((fig, alt)))
    monkeypatch.setattr(plots, "present", lambda fig, alt: shown.append((fig, alt)))
    names = {"torch": torch, "nn": nn, "F": F, "simgpu": simgpu, "drawings": drawings}
    names |= {"plots": plots, "seconds": seconds, "expect_error": expect_error}
    names |= {"device": sim, "sim": sim, "second": sim, "shown": shown}
    yield names
    for fig, _ in shown:
        plots.plt.close(fig)


def run(names, *needed):
    exec(cell(*needed), names)


# The lesson's own claims.


def test_the_ledger_of_one_step_is_the_answer_of_the_exercise(lab):
    run(lab, "def one_step(")
    for _ in range(2):
        with simgpu.count() as ledger:
            lab["one_step"](lab["sim"])
        assert (ledger.bytes_to_device, ledger.bytes_to_host) == EX.one_step_bytes.reference()


def test_what_is_made_on_the_device_does_not_travel(lab, capsys):
    run(lab, "as born")
    assert lab["moved"].bytes_to_device == 4_000_000
    assert lab["born"].bytes_to_device == lab["born"].bytes_to_host == 0
    assert "4,000,000" in capsys.readouterr().out


def test_only_what_a_module_knows_moves(lab, capsys):
    run(lab, "class Kit")
    said = capsys.readouterr().out
    assert re.search(r"weight sim:0 +mean sim:0", said)
    assert re.search(r"scale +cpu +layers\[0\] cpu", said)
    assert "['weight', 'mean']" in said


def test_the_six_bars_say_what_the_text_says(lab):
    run(lab, "def journey(")
    run(lab, "transfer_chart")
    middle = [
        {way.split("\n")[-1]: statistics.median(trials) for way, trials in ways.items()}
        for ways in (lab["times"]["pageable"], lab["times"]["pinned"])
    ]
    (blocking, returns, there), (p_blocking, p_returns, p_there) = (m.values() for m in middle)
    assert p_blocking < 0.8 * blocking, "pinning shortens the journey"
    assert returns == pytest.approx(blocking, rel=0.05), "a pageable source: no difference"
    assert p_returns < 0.05 * p_blocking, "pinned: the call returns at once"
    assert p_there == pytest.approx(p_blocking, rel=0.05), "and the data arrive no earlier"
    assert there == pytest.approx(blocking, rel=0.05)
    ((fig, alt),) = lab["shown"]
    assert [bar.get_height() for bar in fig.axes[0].patches] == pytest.approx(
        [1e3 * m for ways in middle for m in ways.values()]
    )
    assert alt.count("modelled") == 1 and alt.count("pinned") == 3


def test_pinning_in_the_loop_costs_and_looking_early_is_early(lab, capsys):
    run(lab, "def journey(")
    lab["pageable"] = torch.rand(2**22)
    run(lab, "pinned_first")
    assert lab["pinned_first"] > lab["plain"]
    run(lab, "landing.copy_")
    assert lab["returned"] < 0.1 * (simgpu.clock(lab["sim"]).host - lab["start"])
    assert "modelled" in capsys.readouterr().out


def test_the_second_loop_overlaps_and_the_first_does_not(lab):
    run(lab, "def journey(")
    run(lab, "def epoch(")
    lines = []
    for source, free in (("images", False), ("pinned_images", True)):
        with simgpu.timeline() as line:
            lab["epoch"](lab[source], non_blocking=free, read_each=not free)
        lines.append(line)
    waits, free = lines
    assert free.seconds < 0.8 * waits.seconds
    lanes = [lane for lane in waits.lanes if lane != "host"]
    together = [sum(line.overlap_seconds("host", lane) for lane in lanes) for line in lines]
    assert together[1] > 5 * together[0]
    assert len(lab["shown"]) == 2


CLASSIC = (
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! "
    "(when checking argument for argument mat1 in method wrapper_CUDA_addmm)",
    "Expected all tensors to be on the same device, but got mat1 is on cpu, different from other "
    "tensors on cuda:0 (when checking argument in method wrapper_CUDA_addmm)",
    "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same or "
    "input should be a MKLDNN tensor and weight is a dense tensor",
    "Tensors of the same index must be on the same device and the same dtype except `step` tensors",
    "Tensor for argument #1 'self' is on CPU, but expected it to be on GPU (while checking arguments "
    "for addmm)",
    "Placeholder storage has not been allocated on MPS device!",
)


@pytest.mark.parametrize("message", CLASSIC)
def test_the_clinic_knows_the_sentence_of_every_device(message):
    line = next(text for text in cell("def clinic(").splitlines() if "one_device =" in text)
    names: dict[str, str] = {}
    exec(line, names)
    assert re.search(names["one_device"], message)


def test_the_remedy_for_a_late_optimiser_is_one(sim):
    model = nn.Linear(3, 1)
    adam = torch.optim.Adam(model.parameters())
    model(torch.rand(2, 3)).sum().backward()
    adam.step()
    model.to(sim)(torch.rand(2, 3).to(sim)).sum().backward()
    with pytest.raises(RuntimeError, match="same device"):
        adam.step()
    adam.load_state_dict(adam.state_dict())
    before = model.weight.detach().cpu()
    adam.step()
    assert not torch.equal(before, model.weight.detach().cpu())


def test_without_a_second_device_the_chart_is_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(simgpu, "problem", lambda: "This torch is too old.")
    monkeypatch.setattr(drawings, "present", lambda *_: pytest.fail("nothing was timed"))
    drawings.transfer_chart({"pageable": {"blocking": []}, "pinned": {"blocking": []}}, "x", "cpu")
    assert "This torch is too old." in capsys.readouterr().out


# Answers that are not written like the references.


def _sequential(sizes):
    parts = [p for a, b in pairwise(sizes) for p in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def _one_buffer(mean, std):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("both", torch.tensor([mean, std]))

        def forward(self, images):
            shift, scale = self.both[:, None, :, None, None]
            return (images - shift) / scale

    return Both()


def _loss_made_there(counts, device):
    share = torch.tensor([c / sum(counts) for c in counts], device=device)
    return nn.CrossEntropyLoss(weight=1 / (share * len(counts)))


def _move_by_duck(batch, device):
    if hasattr(batch, "to"):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return type(batch)((k, _move_by_duck(v, device)) for k, v in batch.items())
    if isinstance(batch, tuple) and type(batch) is not tuple:
        return batch._replace(**{k: _move_by_duck(v, device) for k, v in batch._asdict().items()})
    if isinstance(batch, (tuple, list)):
        return type(batch)([_move_by_duck(v, device) for v in batch])
    return batch


def _running_mean(batches, step, device):
    total, n = torch.zeros((), device=device), 0
    for n, batch in enumerate(batches, 1):  # noqa: B007
        total += step(batch.to(device, non_blocking=True))
    return float(total / n)


def _borrowed_stream(batches, step, device):
    accelerator = torch.get_device_module(device)
    stream, losses = accelerator.Stream(), []
    for batch in batches:
        with accelerator.stream(stream):
            there = batch.to(device, non_blocking=True)
        accelerator.current_stream().wait_stream(stream)
        losses.append(step(there))
    return sum(losses).item() / len(losses)


def _step_with_set(model, optimizer, images, labels, device):
    model = model.to(device)
    optimizer.zero_grad()
    logits = model(images.to(device))
    nn.CrossEntropyLoss()(logits, labels.to(device)).backward()
    optimizer.step()
    return np.array(logits.cpu().tolist(), dtype=np.float32)


@pytest.mark.parametrize(
    ("slug", "answer"),
    [
        ("one_step_bytes", [368_728, 4]),
        ("tower", _sequential),
        ("normaliser", _one_buffer),
        ("weighted_loss", _loss_made_there),
        ("move", _move_by_duck),
        ("mean_loss", _running_mean),
        ("mean_loss", _borrowed_stream),
        ("train_step", _step_with_set),
    ],
)
def test_another_right_answer_is_right(slug, answer, sim):
    result = getattr(EX, slug).result(answer)
    assert result.outcome == "right", result.bundle().text


def _unassigned(model, optimizer, images, labels, device):
    model.to(device)
    images.to(device)
    return model(images).numpy()


def test_a_device_error_in_an_answer_is_shown_with_its_line(sim):
    text = EX.train_step.result(_unassigned).bundle().text
    assert "same device" in text
    assert "return model(images).numpy()" in text


def test_layers_left_behind_partly_are_hidden_too(sim):
    def tower(sizes):
        class Half(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(sizes[0], sizes[1])
                self.rest = [nn.Linear(a, b) for a, b in pairwise(sizes[1:])]

            def forward(self, x):
                x = self.first(x)
                for layer in self.rest:
                    x = layer(x.relu())
                return x

        return Half()

    assert EX.tower.result(tower).diagnosis == "hidden"


def test_the_checks_leave_no_memory_behind(sim):
    gc.collect()
    before = torch.sim.memory_allocated()
    for exercise in EX:
        answer = exercise.reference() if exercise.wants_value else exercise.reference
        assert exercise.result(answer).outcome == "right"
    gc.collect()
    assert torch.sim.memory_allocated() == before


# Without the simulated device the checks go on, and say how they judged.

UNSEEN = {
    "mean_loss": {"reads-each", "blocking", "waits", "loads-first", "too-early"},
    "train_step": {"stays", "round-trip"},
    "weighted_loss": {"upside-down", "not-scaled"},
}
"""What only a device with data and a clock can show."""


@pytest.mark.parametrize("exercise", list(EX), ids=lambda exercise: exercise.slug)
def test_without_the_simulated_device_answers_are_still_judged(exercise, monkeypatch):
    monkeypatch.setattr(simgpu, "problem", lambda: "This torch is too old.")
    right = exercise.result(exercise.reference() if exercise.wants_value else exercise.reference)
    assert right.outcome == "right", right.bundle().text
    assert exercise.wants_value or "without the simulated device" in right.printed
    unseen = UNSEEN.get(exercise.slug, set())
    for diagnosis in set(exercise.wrong) - unseen:
        assert exercise.result(exercise.wrong[diagnosis]).outcome == "not_yet", diagnosis


# What these exercises needed of the checker.


class Pair(NamedTuple):
    image: torch.Tensor
    name: str


def test_named_tuples_are_compared_before_and_after():
    taken = EX.move.result(lambda batch, device: batch)
    assert taken.outcome == "not_yet"
    assert same(Pair(torch.ones(2), "a"), Pair(torch.ones(2), "a"))
    assert not same(Pair(torch.ones(2), "a"), Pair(torch.zeros(2), "a"))


def test_a_tensor_elsewhere_is_not_the_same():
    assert not same(torch.ones(2), torch.ones(2, device="meta"))
