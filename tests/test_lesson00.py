"""Lesson 00: what its first screen promises holds on the simulated T4; its pictures say what they show."""

from __future__ import annotations

import base64
import re

import nbformat
import pytest
import torch
from harness import NOTEBOOKS, code_cells, run_own

from course_lessons.lesson00 import drawings, guesses, loading
from course_lessons.lesson00.watching import Watched, watch
from course_utils import load_digits, predict
from course_utils.timing import seconds
from simgpu.nodata import NoData
from tools.authoring import opening

NOTEBOOK = nbformat.read(NOTEBOOKS / "00_start_here.ipynb", as_version=4)
PROSE = "\n".join(cell.source for cell in NOTEBOOK.cells if cell.cell_type == "markdown")


def source(ident):
    (found,) = [cell.source for cell in code_cells(NOTEBOOK) if cell.id == ident]
    return found


@pytest.fixture
def sim(simulated):
    return simulated.first()


@pytest.fixture
def figures(monkeypatch):
    """Keep each figure and its alternative text, and close them at the end."""
    shown = []
    monkeypatch.setattr(drawings, "present", lambda fig, alt: shown.append((fig, alt)))
    yield shown
    for fig, _ in shown:
        drawings.plt.close(fig)


@pytest.fixture
def two(sim):
    return opening.two_epochs(sim)


def test_the_times_that_the_lesson_names_are_those_of_the_model(two):
    before, after = two.values()
    said = {seconds(seen.seconds).removesuffix(" ms") for seen in (before, after)}
    assert said == {"43.8", "30.6"}
    assert PROSE.count("43.8") == PROSE.count("30.6") == 3
    assert f"{before.seconds / after.seconds:.1f} times as fast" in PROSE
    assert after.trace.share("wait", on_host=True) < before.trace.share("wait", on_host=True) / 3
    (stored,) = re.findall(r"data:image/png;base64,([\w+/=]+)", PROSE)
    assert len(stored) < 12_000, "it is in the notebook, and twice in its catalogue"
    assert base64.b64decode(stored)[:4] == opening.draw(two)[:4] == b"\x89PNG"


@pytest.mark.slow
def test_the_lessons_cells_train_what_the_picture_shows(sim, figures, capsys):
    names = {"torch": torch, "device": sim, "load_digits": load_digits, "drawings": drawings, "watch": watch}
    names |= {"nn": torch.nn, "F": torch.nn.functional, "batches": loading.batches}
    names["at_item"] = predict("00.item", choices=guesses.AT_ITEM)
    for ident in ("train", "watch-item", "your-epoch"):
        exec(source(ident), names)
    said = capsys.readouterr().out
    right = float(re.search(r"right: ([\d.]+)%", said)[1])
    assert 87 < right < 93, "about nine of ten"
    assert seconds(names["before"].seconds) == "43.8 ms"
    assert "your loop still waits" in said
    exec(source("your-epoch").replace("loss.item()", "loss.detach()"), names)
    said = capsys.readouterr().out
    assert "before 43.8 ms, your loop 30.6 ms: 1.43 times as fast (modelled)" in said
    assert [len(fig.axes) for fig, _ in figures] == [16, 1, 2, 2]
    assert "the GPU computes for 81% of it" in figures[-1][1]


def test_without_a_trace_times_are_bars_and_a_sentence_says_what_is_missing(figures, capsys):
    drawings.gain(Watched(0.66, "measured"), Watched(0.65, "measured"))
    said = capsys.readouterr().out
    assert "No timeline here" in said and "times as fast" not in said
    ((_, alt),) = figures
    assert alt == "Times as bars: before 660 ms; your loop 650 ms."


def test_on_a_cpu_only_the_time_is_seen():
    seen = watch(lambda: torch.ones(3).sum(), torch.device("cpu"))
    assert seen.kind == "measured" and seen.trace is None


def test_loading_takes_the_hosts_time(sim):
    digits = load_digits()
    with NoData():
        seen = watch(lambda: list(loading.batches(digits, sim)), sim)
    assert seen.seconds == pytest.approx(8 * loading.LOADING)


def test_digits_are_drawn_below_their_answers_also_if_all_are_right(figures):
    images, labels = torch.zeros(20, 28, 28), torch.arange(20) % 10
    drawings.answers(images, labels, labels)
    drawings.answers(images, labels, torch.where(torch.arange(20) < 6, labels + 1, labels))
    (_, none), (fig, four) = figures
    assert "0 of them wrong" in none and "4 of them wrong" in four
    assert "but it is" in fig.axes[-1].get_title()


@pytest.mark.slow
def test_a_program_that_says_cuda_is_reported_as_the_lesson_says(tmp_path):
    _, program = source("own-file").split("\n", 1)
    done, report = run_own(tmp_path, program)
    assert done.returncode == 0, done.stderr
    assert "step 9: loss" in done.stdout
    assert "70 MiB" in PROSE and "It needs 70" in done.stdout and "14.6 GiB" in done.stdout
    step = report["step"]["seconds"]
    assert round(step * 1000) == 4 and "About 4 ms" in PROSE
    line = program.splitlines().index('    print(f"step {step}: loss {loss.item():.2f}")') + 1
    (wait,) = [one for one in report["waits"] if one["line"] == line]
    (finding,) = [one for one in report["findings"] if one["line"] == line]
    assert 0.4 < wait["seconds"] / step < 0.5, "Python waits there for nearly half of the step"
    assert finding["saves"] < step / 50, "and would gain almost nothing"
