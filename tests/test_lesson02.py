"""Lesson 02: ledger, chart and errors say what the text says, and its checks judge what answers do."""

from __future__ import annotations

import gc
import os
import re
import statistics
import subprocess
import sys
from typing import NamedTuple

import nbformat
import numpy as np
import pytest
import torch
from answers import wrong
from harness import NOTEBOOKS, ROOT, code_cells
from matplotlib.text import Annotation
from torch import nn
from torch.nn import functional as F

import simgpu
from course_lessons.lesson02 import drawings, explorers
from course_lessons.lesson02.clinic import PLACES, misplaced
from course_lessons.lesson02.drawings import transfer_chart
from course_lessons.lesson02.transfers import journey, pin
from course_lessons.shared.edited import edited
from course_utils import expect_error, plots, predict, todo
from course_utils.errors import Caught
from course_utils.evidence import recorded
from course_utils.exercises import lesson
from course_utils.exercises.values import same
from course_utils.timing import kind_of, seconds

EX = lesson("02")


@pytest.fixture
def sim(simulated):
    return simulated.first()


NOTEBOOK = nbformat.read(NOTEBOOKS / "02_moving_data.ipynb", as_version=4)


def cell(*needed):
    sources = [cell.source for cell in code_cells(NOTEBOOK)]
    (source,) = [source for source in sources if all(text in source for text in needed)]
    return source


@pytest.fixture
def lab(sim, monkeypatch):
    """Return the namespace of the lesson's cells on the simulated device; figures are kept."""
    shown = []
    monkeypatch.setattr(drawings, "present", lambda fig, alt: shown.append((fig, alt)))
    yield {
        **{"torch": torch, "nn": nn, "F": F, "np": np, "simgpu": simgpu, "drawings": drawings},
        **{"expect_error": expect_error, "misplaced": misplaced, "journey": journey, "pin": pin},
        **{"device": sim, "sim": sim, "gpu": sim, "shown": shown, "seconds": seconds, "kind_of": kind_of},
        "pageable_costs": predict("02.pinned", todo(), unit="×"),
        "moves_too": predict("02.moves", todo(), choices=("neither", "both")),
        "must_move": predict("02.named", todo(), choices=("mat2", "the other tensor")),
    }
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


def test_only_what_a_module_knows_moves(lab, capsys):
    run(lab, "class Kit")
    run(lab, "moves_too.reveal")
    said = capsys.readouterr().out
    assert re.findall(r"(\w+)\S* +(sim:0|cpu)\n", said) == [
        *(("weight", "sim:0"), ("mean", "sim:0"), ("scale", "cpu"), ("blocks", "sim:0"), ("layers", "cpu"))
    ]
    assert "['weight', 'mean', 'blocks.0.weight', 'blocks.0.bias']" in said


def labels_of(fig):
    """Return the labels of an annotated error, from left to right and top to bottom."""
    return [text.get_text() for text in fig.axes[0].texts if isinstance(text, Annotation)]


def test_the_picture_of_an_error_says_what_has_to_move(lab):
    run(lab, "drawings.device_error(caught)")
    run(lab, "must_move.reveal")
    assert [labels_of(fig) for fig, _ in lab["shown"]] == [
        ["this tensor", "is here: move it", "the others are on your device", "this operation"],
        ["this tensor", "is on your device", "the others are here: move them", "this operation"],
    ]
    first, second = (alt for _, alt in lab["shown"])
    assert "mat1: this tensor; cpu: is here" in first and "mat2: this tensor; sim:0: is on" in second


def test_a_message_in_other_words_is_replaced_by_cudas(lab):
    caught = Caught(RuntimeError("Placeholder storage has not been allocated on MPS device!"))
    for drawn in (drawings.device_error, drawings.device_error_of_the_left_side):
        for error in (None, caught):
            drawn(error)
    assert all("cuda:0: " in alt for _, alt in lab["shown"]) and len(lab["shown"]) == 4


def test_the_ledger_is_drawn_with_an_answer_and_without(lab):
    with simgpu.count() as counted:
        run(lab, "def one_step(")
        lab["one_step"](lab["sim"])
    for answer in (todo(), (519_256, 4), None, ("a", 4)):
        drawings.ledger(counted, answer)
    drawings.ledger(simgpu.counters.Counters(), todo())
    bars = [len(fig.axes[0].get_yticks()) for fig, _ in lab["shown"]]
    assert bars == [1, 2, 1, 1]
    assert all(
        "parameters 318,040, images 50,176, labels 512; together 368,728" in alt for _, alt in lab["shown"]
    )


def test_the_bars_say_what_the_text_says(lab):
    run(lab, "transfer_chart")
    modelled = [[statistics.median(trials) for trials in ways.values()] for ways in lab["times"].values()]
    *_, (fig, alt) = lab["shown"]
    drawn = []
    for ax in fig.axes:
        waits, free = ([bar.get_width() / 1e3 for bar in bars] for bars in ax.containers[:2])
        ends = [wait + more for wait, more in zip(waits, free, strict=True)]
        drawn.append([[ends[i], waits[i + 1], ends[i + 1]] for i in (0, 2, 4)])
    assert drawn[0] == [pytest.approx(row) for row in modelled]
    for pageable, pinned, _ in drawn:
        assert pinned[0] < 0.8 * pageable[0], "a copy from pinned memory takes less time"
        assert pageable[1:] == pytest.approx([pageable[0]] * 2, rel=0.05), "a large pageable source"
        assert pinned[1] < 0.05 * pinned[0], "pinned: the call returns at once"
        assert pinned[2] == pytest.approx(pinned[0], rel=0.05), "and the data arrive no earlier"
    (here, pinned, on_the_spot), (there, *_, won) = drawn
    assert here[0] / pinned[0] == pytest.approx(2.4, abs=0.05)
    assert (here[0], on_the_spot[0]) == pytest.approx((13.5e-3, 27.9e-3), abs=5e-5)
    assert won[0] < there[0] / 4 and won[2] < there[0] / 1.9, "recorded, it paid"
    titles = [ax.get_title(loc="left") + ax.get_title() for ax in fig.axes]
    assert all("64 MiB" in title for title in titles)
    assert "(modelled)" in titles[0] and "H200 (recorded)" in titles[1]
    assert alt.count("(modelled)") == alt.count("(recorded)") == 1


def test_the_records_are_found_in_the_chinese_edition_too():
    code = "from course_lessons.lesson02 import drawings; print(*drawings._recorded_host_to_device(64))"
    environment = {**os.environ, "COURSE_LANGUAGE": "zh"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert run.stdout.split("\n")[0] == "NVIDIA H200", run.stderr


def test_the_records_say_what_the_text_says_of_copies():
    def time(megabytes, source):
        keys = {"megabytes": megabytes, "source": source, "non_blocking": False}
        (m,) = [m for m in recorded("host_to_device", **keys) if m.kind == "recorded"]
        return m

    assert time(64, "pageable").median / time(64, "pinned").median == pytest.approx(7.8, abs=0.05)
    assert time(64, "pageable").median == pytest.approx(10.2e-3, abs=5e-5)
    assert time(64, "pinned on the spot").median == pytest.approx(2.4e-3, abs=5e-5)
    small = time(1, "pinned on the spot")
    assert (small.q1, small.median) == pytest.approx((0.09e-3, 5.9e-3), abs=5e-6)
    assert time(1, "pageable").median == pytest.approx(0.10e-3, abs=5e-6)


def test_many_small_pageable_copies_are_better_not_blocking(lab, capsys):
    run(lab, "small pageable copies")
    said = re.findall(r"non_blocking=(\w+): ([\d.]+) ms \(modelled\)", capsys.readouterr().out)
    (_, blocking), (_, free) = said
    assert [name for name, _ in said] == ["False", "True"]
    assert float(free) < 0.9 * float(blocking)


def test_after_a_restart_few_cells_are_enough_for_these(lab, capsys):
    names = {"np": np, "pageable_costs": lab["pageable_costs"]}
    run(names, "get_device()")
    run(names, "transfer_chart")
    for needed in ("small pageable copies", "landing.copy_", "tensor to numpy"):
        run(names, needed)
    assert "Error" in capsys.readouterr().out


def test_on_the_cpu_nothing_is_copied(lab, capsys):
    run(lab | {"begins_with": predict("02.copy", todo())}, "begins_with.reveal")
    assert "under two names: False and on a plain CPU: True" in capsys.readouterr().out


def test_looking_early_is_early(lab, capsys):
    run(lab, "landing.copy_")
    assert "read at once: 0.0  read after synchronize(): 1.0" in capsys.readouterr().out


def test_there_is_no_journey_to_the_cpu():
    assert journey(lambda: pytest.fail("nothing was timed"), torch.device("cpu")) == ([], [])
    tensor = torch.rand(2)
    assert pin(tensor, torch.device("cpu")) is tensor


def test_bytes_travel_as_bytes_where_the_conversion_comes_after(sim):
    images = torch.zeros(64, 784, dtype=torch.uint8)
    with simgpu.count() as after:
        images.to(sim).float()
    with simgpu.count() as before:
        images.to(sim, torch.float32)
    with simgpu.count() as free:
        images.to(sim, torch.float32, non_blocking=True)
    assert 4 * after.bytes_to_device == before.bytes_to_device == 4 * free.bytes_to_device


def test_three_things_cross_silently(sim):
    x = torch.arange(4.0).to(sim)
    assert (x * torch.tensor(2.0)).tolist() == [0, 2, 4, 6]
    assert x[torch.tensor([0, 2])].tolist() == [0, 2]
    x[1:] = torch.ones(3)
    assert x.tolist() == [0, 1, 1, 1]
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(4) * torch.tensor(2.0, device=sim)


def test_a_buffer_becomes_a_new_tensor_and_a_parameter_does_not(sim):
    norm = nn.BatchNorm1d(3)
    weight, mean = norm.weight, norm.running_mean
    norm.to(sim)
    assert norm.weight is weight and norm.running_mean is not mean


def test_the_loop_is_that_of_the_explorer_and_the_text_has_its_times(lab):
    run(lab, "drawings.one_line(line)")
    line, all_four = lab["line"], explorers.loop(True, True, False, True)
    assert line.seconds == pytest.approx(explorers.loop(False, False, True, False).seconds, rel=0.01)
    assert line.busy_seconds("sim:0 compute") / line.seconds == pytest.approx(0.5, abs=0.05), "about half"
    assert all_four.seconds == pytest.approx(8.47e-3, abs=5e-6)
    assert all_four.busy_seconds("sim:1 compute") == pytest.approx(7.47e-3, abs=5e-6)
    late = explorers.loop(False, False, False, False)
    together = [each.overlap_seconds("host", "sim:1 compute") for each in (all_four, late)]
    assert min(together) > 2 * line.overlap_seconds("host", "sim:0 compute")
    ((fig, alt),) = lab["shown"]
    assert {text.get_text() for text in fig.axes[0].get_legend().get_texts()} >= {"loading"}
    assert alt.startswith("Four batches: 14.8 ms")


def test_a_second_stream_copies_while_it_computes_and_races_where_nobody_waits(lab):
    run(lab, "drawings.one_line(line)")
    run(lab, "record_stream")
    one, two, unsafe = lab["lines"].values()
    lanes = "sim:0 host to device", "sim:0 compute"
    assert two.overlap_seconds(*lanes) > 0.5 * two.busy_seconds(lanes[0])
    assert one.overlap_seconds(*lanes) == 0 and two.seconds < 0.9 * one.seconds
    assert not one.races and not two.races and len(unsafe.races) == 4
    *_, (_, alt) = lab["shown"]
    assert "4 races" in alt


def test_without_a_second_device_nothing_is_misplaced():
    with misplaced(torch.device("cpu")):
        pass
    with pytest.raises(AssertionError), misplaced(torch.device("meta")):
        pass


def test_the_way_back_by_force(sim):
    weight = nn.Linear(2, 2).to(sim).weight
    assert weight.numpy(force=True).shape == (2, 2)


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
    assert re.search(PLACES, message)


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
    monkeypatch.setattr(simgpu, "unavailable_reason", lambda: "This torch is too old.")
    monkeypatch.setattr(drawings, "present", lambda *_: pytest.fail("nothing was timed"))
    times = {"pageable": {"blocking": []}, "pinned": {"blocking": []}}
    transfer_chart(times, torch.device("cpu"))
    assert "This torch is too old." in capsys.readouterr().out


# Answers, and what the learner is told.


def _unassigned(model, optimizer, images, labels, device):
    model.to(device)
    images.to(device)
    return model(images).numpy()


def test_a_device_error_in_an_answer_is_shown_with_its_line(sim):
    text = EX.train_step.result(_unassigned).bundle().text
    assert "same device" in text
    assert "return model(images).numpy()" in text


_STEP = "losses.append(step(batch.to(device, non_blocking=True)))"
_LIST = "return type(batch)(move(value, device) for value in batch)"
_LAYERS = "self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))"
_LISTED = "self.layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]\nself.first = self.layers[0]"


def _weighted(weigh):
    return lambda counts, device: nn.CrossEntropyLoss(weight=weigh(np.array(counts))).to(device)


def _buffers_beside_the_constants(mean, std):
    module = wrong(EX.normaliser)["stays"](mean, std)
    module.register_buffer("mean_buffer", module.mean)
    module.register_buffer("std_buffer", module.std)
    return module


WRONG = [
    ("one_step_bytes", (318_040 + 4 * 50_176 + 256, 4), "floats", "right in it: the model"),
    ("one_step_bytes", (50_176 + 256, 4), "no-model", "right in it: the images"),
    (
        "mean_loss",
        {
            _STEP: f"{_STEP}\nif len(losses) % 2:\n    losses[-1] = losses[-1].item()",
            "torch.stack(losses).mean().item()": "sum(map(float, losses)) / len(losses)",
        },
        "wrong-value",
        "Seen: ",
    ),
    (
        "mean_loss",
        lambda batches, step, device: step(torch.cat(list(batches)).to(device)).item(),
        "wrong-value",
        "calls of step: 1",
    ),
    ("normaliser", {"images - ": "images.cpu() - "}, "wrong-value", "a result on"),
    ("normaliser", _buffers_beside_the_constants, "stays", "`forward` uses"),
    (
        "normaliser",
        {
            "super().__init__()": "super().__init__()\n"
            "self.constants = [torch.tensor(values).view(-1, 1, 1) for values in (mean, std)]",
            "self.mean) / self.std": "self.constants[0].to(images.device)) "
            "/ self.constants[1].to(images.device)",
        },
        "moves-by-hand",
        "24 bytes",
    ),
    (
        "normaliser",
        {
            "(images - self.mean)": "torch.stack("
            "[x - m for x, m in zip(images.unbind(1), mean, strict=True)], 1)"
        },
        "wrong-value",
        "3 numbers in buffers",
    ),
    (
        "weighted_loss",
        _weighted(lambda counts: torch.tensor(counts.sum() / (len(counts) * counts))),
        "wrong-value",
        "float64",
    ),
    (
        "weighted_loss",
        _weighted(lambda counts: torch.tensor(1 / counts / (1 / counts).sum()).float()),
        "not-scaled",
        "factor",
    ),
    (
        "weighted_loss",
        _weighted(lambda counts: torch.tensor(3 * counts).float()),
        "upside-down",
        "frequent classes",
    ),
    ("move", lambda batch, device: None, "returned-nothing", "Seen: None"),
    (
        "move",
        {"return {key: move(value, device) for key, value in batch.items()}": "return None"},
        "returned-nothing",
        "Seen: None",
    ),
    (
        "move",
        {
            "isinstance(batch, (list, tuple))": 'hasattr(batch, "__iter__")',
            _LIST: "return type(batch)([move(value, device) for value in batch])",
        },
        "strings",
        "RecursionError",
    ),
    (
        "train_step",
        {"logits = ": "optimizer = torch.optim.SGD(model.parameters(), lr=0.01)\nlogits = "},
        "wrong-value",
        "Seen: ",
    ),
    (
        "train_step",
        {
            "model.to(device)": "model = copy.deepcopy(model).to(device)\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=0.5)"
        },
        "stays",
        "the model you were given isn't on",
    ),
    (
        "tower",
        {"nn.Linear(a, b)": "nn.Linear(a, b, device='sim:0')"},
        "born-there",
        "layers on sim:0",
    ),
    ("tower", {_LAYERS: _LISTED}, "hidden", "does not find all the layers"),
    (
        "tower",
        {_LAYERS: _LISTED, "layer(x)": "layer.to(x.device)(x)", "[-1](x)": "[-1].to(x.device)(x)"},
        "moves-by-hand",
        "not find them all",
    ),
]


@pytest.mark.parametrize(("slug", "answer", "diagnosis", "words"), WRONG)
def test_a_wrong_answer_is_told_what_is_wrong(slug, answer, diagnosis, words, sim):
    exercise = getattr(EX, slug)
    answer = edited(exercise.reference, answer) if isinstance(answer, dict) else answer
    result = exercise.result(answer)
    assert (result.outcome, result.diagnosis) == ("not_yet", diagnosis)
    assert words in result.bundle().text


def test_a_function_that_calls_itself_without_end_is_shown_its_error(sim):
    def move(batch, device):
        return move(batch, device)

    assert EX.move.result(move).outcome == "raised"


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
    "mean_loss": {"reads-each", "blocking", "loads-first", "race", "let-go"},
    "move": {"wrong-value"},
    "train_step": {"stays", "loss-on-host", "too-early"},
    "weighted_loss": {"upside-down", "not-scaled"},
}
"""What only a device with data and a clock can show."""


@pytest.mark.slow
@pytest.mark.parametrize("exercise", list(EX), ids=lambda exercise: exercise.slug)
def test_without_the_simulated_device_answers_are_still_judged(exercise, monkeypatch):
    monkeypatch.setattr(simgpu, "unavailable_reason", lambda: "This torch is too old.")
    right = exercise.result(exercise.reference() if exercise.wants_value else exercise.reference)
    assert right.outcome == "right", right.bundle().text
    assert exercise.wants_value or "without the simulated device" in right.printed
    for diagnosis, answer in wrong(exercise).items():
        if diagnosis not in UNSEEN.get(exercise.slug, ()):
            assert exercise.result(answer).outcome in ("not_yet", "raised"), diagnosis


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
