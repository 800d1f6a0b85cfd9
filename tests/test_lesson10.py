"""Lesson 10: its checks judge what answers do, and its pictures say what they show."""

from __future__ import annotations

import functools
import math
import time
from pathlib import Path

import nbformat
import pytest
import torch
from answers import right, wrong
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from course_lessons.lesson10 import crop_flip as in_crop_flip
from course_lessons.lesson10 import drawings as in_drawings
from course_lessons.lesson10 import ledger, letters, results
from course_lessons.lesson10.checking import candidates, numbered
from course_lessons.lesson10.drawings import Height, ladder
from course_lessons.lesson10.time_to_target import time_to_target
from course_lessons.shared import monitor, profiling
from course_utils import data as course_data
from course_utils import this_machine
from course_utils.data import OneByOne, Split
from course_utils.exercises import lesson, todo
from course_utils.timing import Measurement

EX = lesson("10")
NOTEBOOK = Path(__file__).parents[1] / "notebooks" / "10_capstone.ipynb"


def judged(name, answer):
    result = getattr(EX, name).result(answer)
    return result.outcome, result.diagnosis


def test_every_exercise_was_solved_in_another_way():
    assert all(map(right, EX))


def test_an_error_after_right_results_is_shown():
    def only_in_the_last(runs, target):
        found = time_to_target(runs, target)
        return found if len(runs) != 2 or found < math.inf else [][0]

    assert judged("time_to_target", only_in_the_last) == ("raised", "IndexError")


def test_a_loop_that_draws_in_python_is_refused_for_its_operations():
    result = EX.crop_flip.result(wrong(EX.crop_flip)["one-by-one"])
    assert "8 images" in result.bundle().text and "for 40" in result.bundle().text


def test_an_error_on_another_device_is_the_learners():
    def crop_flip(images, pad, flip):
        return in_crop_flip.crop_flip(images, pad, flip) + (
            torch.zeros(1, dtype=images.dtype) @ torch.zeros(1, dtype=images.dtype).to(images.device)
        )

    assert judged("crop_flip", crop_flip)[0] == "raised"


@pytest.mark.serial
@pytest.mark.parametrize("exercise", list(EX), ids=lambda exercise: exercise.slug)
def test_a_check_is_quick_and_a_stub_is_not_tried(exercise):
    assert exercise.result(exercise.reference).outcome == "right"
    assert min(_seconds_of_a_check(exercise) for _ in range(3)) < 0.3
    assert exercise.result(todo()).outcome == "not_tried"


def _seconds_of_a_check(exercise):
    begin = time.process_time()
    exercise.result(exercise.reference)
    return time.process_time() - begin


# --- what the notebook uses


def test_the_slow_data_set_crops_mirrors_and_normalises_each_image():
    images = numbered(4, 6, 5, torch.uint8)
    torch.manual_seed(0)
    data = OneByOne(images, torch.arange(4), 1, 1.0, 0.5, 0.25)
    x, y = next(iter(DataLoader(data, 4)))
    assert (x.shape, x.dtype, y.tolist()) == (images.shape, torch.float32, [0, 1, 2, 3])
    back = ((x * 0.25 + 0.5) * 255).round().to(torch.uint8)
    found = (candidates(images, 1)[:, 1] == back).flatten(2).all(2)
    assert found.any(0).all()


def test_the_slow_data_set_goes_to_workers_on_every_system():
    import pickle

    data = OneByOne(torch.zeros(1, 3, 4, 4, dtype=torch.uint8), torch.zeros(1), 1, 0.5, 0.0, 1.0)
    assert len(pickle.loads(pickle.dumps(data))) == 1


def test_a_device_without_tf32_units_is_not_said_to_use_them():
    with profiling.Counted("cpu") as counted:
        F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))
    assert list(counted.flops) == ["fp32"]


@pytest.mark.parametrize(("unit", "precision"), [("tf32", "high"), ("fp32", "highest")])
def test_the_best_rate_is_that_of_the_unit_that_is_named(monkeypatch, unit, precision):
    seen = []

    def measure(work, **how):
        seen.append(torch.get_float32_matmul_precision())
        return Measurement.of([1.0], "product", "cpu")

    monkeypatch.setattr(profiling, "measure", measure)
    before = torch.get_float32_matmul_precision()
    assert profiling._measured_best_flops.__wrapped__(torch.device("cpu"), unit, 1) == 2 * 512**3
    assert seen == [precision] and torch.get_float32_matmul_precision() == before


def test_the_best_rates_of_a_cpu_belong_to_its_number_of_threads(monkeypatch):
    asked, threads = [], [1]

    def measure(work, **how):
        asked.append(threads[0])
        return Measurement.of([1.0 / threads[0]], "work", "cpu")

    monkeypatch.setattr(profiling, "measure", measure)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[0])
    for name in ("_measured_best_flops", "_measured_copy_rate"):
        uncached = functools.cache(getattr(profiling, name).__wrapped__)
        monkeypatch.setattr(profiling, name, uncached)
    for rate in (profiling.best_flops, profiling.best_bytes):
        found = {}
        for threads[0] in (1, 3, 1):
            found[threads[0]] = rate(torch.device("cpu"))
        assert found[3] == pytest.approx(3 * found[1])
    assert asked == [1, 3] * 2


def test_energy_is_none_where_nothing_tells():
    assert monitor.joules("cpu") is None


def test_the_runs_say_how_many_got_there(capsys):
    best = [[(1.0, 0.95)], [(1.0, 0.95), (2.0, 0.97)], [(3.0, 0.96)]]
    in_drawings.runs(best, [(15.0, 0.9), (30.0, 0.93)], 0.96)
    said = capsys.readouterr().out
    assert "2 of 3 runs reach 96%" in said and "93.0% after 30 s" in said


def test_the_ladder_says_what_was_kept(capsys):
    heights = [
        Height("the first loop", (9.0, 10.0, 11.0), True),
        Height("faster", (18.0, 20.0, 22.0), True, 2.0, guess=30.0),
        Height("slower", (9.0, 10.0, 12.0), False),
        Height("TF32", None, False),
    ]
    ladder(heights)
    said = capsys.readouterr().out
    for words in (
        "faster: 20 images/s, kept",
        "slower: 10 images/s, left out",
        "TF32: not measured",
    ):
        assert words in said


# --- the second ladder


class Knows(nn.Module):
    """A GPT that gives all probability to one letter."""

    def __init__(self, letter):
        super().__init__()
        self.place, self.head = nn.Embedding(4, 2), nn.Linear(2, 128, bias=False)
        with torch.no_grad():
            self.head.weight.zero_()[letter] = 1.0

    def forward(self, given, following):
        return self.head(torch.ones(following.numel(), 2)).sum()


@pytest.mark.parametrize(("letter", "share"), [(7, 0.75), (9, 0.25), (8, 0.0)])
def test_the_share_of_letters_that_are_guessed(letter, share):
    text = torch.tensor([0, 7, 7, 7, 9] * 3 + [9], dtype=torch.uint8)
    assert letters.accuracy(Knows(letter), text) == share


def test_the_text_is_the_lessons_own_in_ascii():
    learn, held_out = letters.text("cpu")
    assert learn.dtype == torch.uint8 and int(torch.cat([learn, held_out]).max()) < 128
    assert len(learn) > 15 * len(held_out) > 15 * 20_000
    assert "def " in bytes(held_out.tolist()).decode()


def test_the_share_of_the_limit_is_six_flops_a_weight_and_letter(tmp_path, capsys):
    made = ledger.Ledger(lambda parts: iter(()), {}, "cpu", evaluate=len, epoch=1, folder=tmp_path)
    made.base = Measurement.of([100.0], "first", "cpu")
    made.gain = 2.0
    results.note_mfu(made, 1000, "bf16", plain=6e6, best=3e6)
    assert made.results["MFU, first loop"] == "10.0% (fp32)"
    assert made.results["MFU, best loop"] == "40.0% (bf16)"
    assert "200 letters/s" in capsys.readouterr().out


# --- the lesson with other data and with a compiler


def _coloured(n):
    """Return images whose colour is their label, so that any network learns them quickly."""
    labels = torch.arange(n) % 10
    images = (labels * 25)[:, None, None, None].expand(n, 32, 32, 3).to(torch.uint8).clone()
    images[..., 1] = 250 - images[..., 1]
    return images, labels


@pytest.mark.everywhere
def test_the_lesson_climbs_with_cifar10_and_with_a_compiler(monkeypatch, tmp_path, capsys):
    compiled = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_DEVICE", "cpu")
    monkeypatch.setenv("COURSE_COMPILE", "1")
    monkeypatch.setattr(torch, "compile", lambda model: compiled.append(model) or model)
    monkeypatch.setattr(course_data, "load_cifar10", lambda: Split(*_coloured(1024), *_coloured(100)))
    monkeypatch.setattr(this_machine, "usable_cores", lambda: 1)
    for name, value in {"ROUNDS": 2, "TURN": 0.001, "LEAD_IN": 1}.items():
        monkeypatch.setattr(ledger, name, value)
    threads, names = torch.get_num_threads(), {"ex": EX}
    try:
        for cell in nbformat.read(NOTEBOOK, as_version=4).cells:
            if cell.cell_type == "code" and "generated" not in cell.metadata.get("tags", []):
                source = cell.source.replace("REAL_CIFAR10 = False", "REAL_CIFAR10 = True")
                if source.startswith("%%writefile "):
                    line, _, script = source.partition("\n")
                    Path(line.split()[1]).write_text(script, encoding="utf-8")
                    continue
                exec(compile(source, cell.id, "exec"), names)
        graphs = []
        monkeypatch.setattr(
            torch.cuda,
            "make_graphed_callables",
            lambda model, given: graphs.append(len(given[0])) or model,
            raising=False,
        )
        next(names["training"](names["ledger"].best | {"wrap": names["graphed"], "batch": 24}))
    finally:
        torch.set_num_threads(threads)
    assert graphs == [24]
    said = capsys.readouterr().out
    assert "(1024, 3, 32, 32) torch.uint8" in said and names["flip"] == 0.5
    assert compiled and "torch.compile" in [rung.name for rung in names["ledger"].rungs]
    assert [rung.name for rung in names["gpt"].rungs][-1] == "two ranks"
    assert "of 10 runs reach 60%" in said and names["record"].is_file()
