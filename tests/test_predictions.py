"""Predict first: what a learner types, what comes back, and what is kept."""

import json
import re
import subprocess
import sys

import numpy
import pytest
import torch
from harness import execute, notebook

from course_utils import course_map, predict, predictions, progress_file, todo
from course_utils.predictions import Found, score
from course_utils.timing import Measurement
from tools.authoring.anatomy import anatomy_problems


@pytest.fixture(autouse=True)
def _fresh_kernel(monkeypatch):
    monkeypatch.setattr(predictions, "all_predictions", {})


def measurement(median, q1, q3, unit="s", kind="measured"):
    return Measurement("x", median, q1, q3, 9, "cpu", "a CPU", "2", 2, "2026-11-21", kind, unit)


def kept():
    path = progress_file.progress_file()
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_guess_is_set_beside_what_was_found_and_kept(capsys):
    speedup = predict("05.amp", 3, unit="×")
    assert "Your prediction: 3×." in capsys.readouterr().out
    assert not kept()
    speedup.reveal((3.9, 4.1))
    out = capsys.readouterr().out
    assert "Near" in out and "You predicted 3×. Found: 4× (3.9 to 4.1)." in out
    assert "Too low by a factor of 1.3" in out
    (line,) = kept()
    assert (line["prediction"], line["verdict"], line["guess"]) == ("05.amp", "near", 3.0)
    assert line["found"] == [3.9, 4.1]


def test_without_a_guess_the_answer_is_shown_kindly_and_nothing_is_kept(capsys):
    for i, guess in enumerate(([todo()], [])):
        made = predict(f"05.{i}", *guess, unit="ms")
        assert "put a number in place of todo()" in capsys.readouterr().out
        made.reveal(2.5)
        out = capsys.readouterr().out
        assert "Found: 2.5 ms." in out and "You made no prediction" in out
        assert "You predicted" not in out
    assert not kept()


class Odd:
    def __repr__(self):
        raise RuntimeError("no repr")

    def __float__(self):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("guess", "says"),
    [
        (["4x"], "'4x' is a text"),
        ([None], "None is no number"),
        ([lambda: 4], "a function is no number"),
        ([float("nan")], "nan is no finite number"),
        ([-3], "-3 is negative"),
        ([[1, 2]], "[1, 2] is no number"),
        ([True], "True is no number"),
        ([10**400], "is no number"),
        ([Odd()], "is no number"),
        ([0, 5], "a decimal point is a point"),
    ],
)
def test_what_is_no_guess_gets_one_sentence_and_counts_for_nothing(guess, says, capsys):
    made = predict("05.x", *guess, unit="×")
    out = capsys.readouterr().out
    assert says in out and "Put a number in place of todo()" in out and out.count("\n") == 1
    made.reveal(4)
    assert "You made no prediction" in capsys.readouterr().out
    assert not kept()


def test_numpy_and_torch_numbers_are_guesses(capsys):
    for i, number in enumerate((numpy.float32(4), numpy.int64(4), torch.tensor(4.0), torch.tensor([4]))):
        predict(f"05.{i}", number, unit="×").reveal(torch.tensor(4.1))
    assert capsys.readouterr().out.count("Close") == 4
    assert [line["guess"] for line in kept()] == [4.0] * 4


def test_the_newest_guess_before_the_answer_counts(capsys):
    predict("05.x", 10, unit="×")
    made = predict("05.x", 4, unit="×")
    predict("05.x", "5x", unit="×")
    assert "Until then 4× stands" in capsys.readouterr().out
    made.reveal(4)
    predict("05.x", 4, unit="×").reveal(4)  # the same cells again
    out = capsys.readouterr().out
    assert out.count("Close") == 2 and "already" not in out
    assert [line["guess"] for line in kept()] == [4.0]
    predict("05.y", 10, unit="×")
    predict("05.y", todo(), unit="×").reveal(4)  # takes it back
    assert "You made no prediction" in capsys.readouterr().out


def test_a_guess_after_the_answer_does_not_count(capsys):
    predict("05.x", 10, unit="×").reveal(4)
    again = predict("05.x", 4, unit="×")
    assert "the answer already, so your first prediction, 10×, stays" in capsys.readouterr().out
    again.reveal(4.05)
    assert "You predicted 10×. Found: 4.05×." in capsys.readouterr().out
    assert [line["guess"] for line in kept()] == [10.0]

    predict("05.y", todo()).reveal(4)
    predict("05.y", 4).reveal(4)
    out = capsys.readouterr().out
    assert "this guess does not count" in out and "Close" not in out
    assert len(kept()) == 1


@pytest.mark.parametrize(
    ("unit", "guess", "low", "high", "verdict", "says"),
    [
        ("×", 4.0, 3.9, 4.3, "close", "Inside the range"),
        ("×", 4.0, 4.0, 4.0, "close", "Exactly."),
        ("×", 4.4, 4.0, 4.0, "close", "Within 10 % of it"),
        ("×", 4.5, 4.0, 4.0, "near", "Too high by a factor of 1.1"),
        ("×", 2.0, 4.0, 4.2, "near", "Too low by a factor of 2."),
        ("×", 1.9, 4.0, 4.2, "off", "Too low by a factor of 2.1"),
        ("×", 100, 4.0, 5.0, "off", "Too high by a factor of 20."),
        ("×", 1.3, 0.8, 0.85, "off", "on the other side of 1"),
        ("ms", 1.3, 0.8, 0.85, "near", "Too high by a factor of 1.5"),
        ("×", 0.95, 1.0, 1.0, "close", "Within 10 % of it"),
        ("ms", 0, 2, 2, "off", "Too low."),
        ("ms", 2, 0, 0, "off", "Too high."),
        ("GB/s", 1e6, 1e9, 1e9, "off", "Too low by a factor of 1,000"),
        ("%", 93, 97, 98, "close", "Within 5 points of it"),
        ("%", 90, 97, 98, "near", "7 points too low"),
        ("%", 20, 1, 2, "off", "18 points too high"),
        ("%", 3, 1, 1, "close", "Within 5 points of it"),
    ],
)
def test_scores(unit, guess, low, high, verdict, says):
    got, said = score(guess, Found((low + high) / 2, low, high), unit)
    assert (got, says in said) == (verdict, True), (got, said)
    assert ("think before you read on" in said.lower()) == (verdict == "off")


def test_measurements_bring_their_range_kind_and_unit(capsys):
    predict("05.t", 2, unit="ms").reveal(measurement(2e-3, 1.9e-3, 2.2e-3, kind="modelled"))
    out = capsys.readouterr().out
    low, high = re.search(r"Found: 2 ms \((\S+) to (\S+)\), modelled\.", out).groups()
    assert "Inside" in out
    assert float(low) < 1.9 and float(high) > 2.2, "where real cards would be"
    several = [measurement(1e-3, 0.9e-3, 1.1e-3), measurement(4e-3, 3e-3, 5e-3)]
    predict("05.r", 2, unit="ms").reveal(several)
    assert "(0.9 to 5), measured" in capsys.readouterr().out
    predict("05.m", 64, unit="MiB").reveal(measurement(64 * 2**20, 2**26, 2**26, unit="B"))
    assert "Found: 64 MiB" in capsys.readouterr().out
    predict("05.a", 97, unit="%").reveal(measurement(0.97, 0.96, 0.98, unit="1"))
    assert "Found: 97 % (96 to 98)" in capsys.readouterr().out
    rate = measurement(65e12, None, None, "FLOP/s", "published")
    predict("05.p", 65, unit="TFLOP/s").reveal(rate)
    assert "Found: 65 TFLOP/s, published." in capsys.readouterr().out


@pytest.mark.parametrize(
    "found", [None, "fast", [], (1, None), float("nan"), object(), measurement(2.0, 1.0, 3.0)]
)
def test_what_cannot_be_compared_is_said_and_not_raised(found, capsys):
    predict("05.x", 4, unit="×").reveal(found)
    assert "no comparison is possible, because" in capsys.readouterr().out
    assert not kept()


def test_a_choice(capsys):
    answers = ("faster", "slower", "same")
    made = predict("05.which", "quick", choices=answers)
    assert "Put one of 'faster', 'slower', 'same'" in capsys.readouterr().out
    made = predict("05.which", " Slower ", choices=answers)
    made.reveal("slower")
    assert "Right · 05.which\nYou predicted slower.\n" in capsys.readouterr().out
    predict("05.other", "same", choices=answers).reveal("faster")
    out = capsys.readouterr().out
    assert "Not quite · 05.other\nYou predicted same. Right answer: faster. Why might" in out
    predict("05.digit", 9, choices=("0", "9")).reveal(9)
    assert "Right" in capsys.readouterr().out
    predict("05.two", "same", "faster", choices=answers)
    assert "none of the answers" in capsys.readouterr().out
    made.reveal("sideways")
    assert "no comparison is possible" in capsys.readouterr().out
    assert [line["verdict"] for line in kept()] == ["close", "off", "close"]


TIMES = {"2": "That counts the reads.", "8": "", "0.5": "It's the other way round."}


def test_a_wrong_choice_is_told_why_and_a_right_one_is_not(capsys):
    predict("05.a", 2, choices=TIMES).reveal("8")
    out = capsys.readouterr().out
    assert "Not quite · 05.a\nYou predicted 2. Right answer: 8. That counts the reads.\n" in out
    predict("05.b", "0.5", choices=TIMES).reveal("0.5")
    assert "Right · 05.b\nYou predicted 0.5.\n" in capsys.readouterr().out
    predict("05.c", todo(), choices=TIMES).reveal(8)
    out = capsys.readouterr().out
    assert "put one of '2', '8', '0.5' in place" in out
    assert "The answer · 05.c\nRight answer: 8. You made no prediction" in out
    assert [(line["verdict"], line["found"]) for line in kept()] == [("off", "8"), ("close", "0.5")]


@pytest.mark.parametrize("typed", [8, 8.0, "8", " 8 ", numpy.int64(8), torch.tensor(8)])
def test_a_number_is_the_choice_that_is_written_like_it(typed, capsys):
    predict("05.x", typed, choices=TIMES).reveal(typed)
    assert "Right" in capsys.readouterr().out


@pytest.mark.parametrize("typed", [80, 8.5, True, None, [8], float("nan"), Odd()])
def test_what_is_no_choice_is_no_guess(typed, capsys):
    predict("05.x", typed, choices=TIMES)
    assert "none of the answers. Put one of '2', '8', '0.5'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("measured", "unit", "kind", "says"),
    [
        (7.6, "×", "", "Measured here: 7.6×."),
        ((7.1, 8.2), "×", "measured", "Measured here: 7.65× (7.1 to 8.2)."),
        (7.6, "×", "modelled", "Modelled here: 7.6×."),
        (measurement(2e-3, 1.9e-3, 2.2e-3), "ms", "", "Measured here: 2 ms (1.9 to 2.2)."),
        (measurement(2e-3, 1.9e-3, 2.2e-3), "", "", "Measured here: 2 ms."),
        (measurement(2e-3, 2e-3, 2e-3, kind="modelled"), "", "", "Modelled here: 2 ms."),
        (measurement(65e12, None, None, "FLOP/s", "published"), "", "", "figure: 65 TFLOP/s, published."),
    ],
)
def test_what_was_measured_is_shown_and_decides_nothing(measured, unit, kind, says, capsys):
    for guess, verdict in ((8, "Right"), (2, "Not quite")):
        predict(f"05.{guess}", guess, unit=unit, choices=TIMES).reveal("8", measured, kind=kind)
        out = capsys.readouterr().out
        assert verdict in out and out.rstrip().endswith(says), out
    predict("05.n", 8, unit=unit).reveal(8, measured, kind=kind)
    assert "Exactly." in (out := capsys.readouterr().out) and says in out


def test_a_figure_that_cannot_be_shown_keeps_nothing_else_back(capsys):
    predict("05.x", 8, choices=TIMES, unit="×").reveal("8", measurement(2.0, 1.0, 3.0))
    out = capsys.readouterr().out
    assert "the figure can't be shown, because" in out and "Right · 05.x" in out


def test_the_course_map_counts_predictions_and_is_otherwise_as_before(capsys):
    course_map()
    before = capsys.readouterr().out
    assert "Predictions" not in before
    predict("01.a", 4).reveal(4)
    predict("01.speedup", 40).reveal(4)
    capsys.readouterr()
    course_map()
    after = capsys.readouterr().out
    assert "Predictions: 2 made, 1 close." in after
    assert after.splitlines()[:-1] == before.splitlines()[:-1]
    assert not progress_file.solved() and not list(progress_file.attempts())


def test_the_first_prediction_of_each_counts(monkeypatch):
    predict("01.a", 40).reveal(4)
    monkeypatch.setattr(predictions, "all_predictions", {})  # as a new kernel would have it
    predict("01.a", 4).reveal(4)
    progress_file.record_attempt("01.speedup", "right")
    with progress_file.progress_file().open("a") as file:
        file.write('{"prediction": \n[1]\n"text"\n{"prediction": "01.b"}\n')
    assert progress_file.predictions() == {"01.a": "off"}
    assert progress_file.solved() == {"01.speedup"}


def test_a_file_that_cannot_be_written_costs_a_line(monkeypatch, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "progress.jsonl"))
    predict("05.x", 4).reveal(4)
    out = capsys.readouterr().out
    assert "could not be kept" in out and "Close" in out


def test_after_a_restart_the_guess_on_file_is_found(monkeypatch, capsys):
    predict("05.speed", 3, unit="×").reveal(4)
    predict("05.side", "slower", choices={"faster": "It waits.", "slower": ""}).reveal("slower")
    predict("05.times", 2, choices=TIMES).reveal("8")
    before = progress_file.progress_file().read_bytes()
    monkeypatch.setattr(predictions, "all_predictions", {})
    capsys.readouterr()
    speed = predict("05.speed", todo(), unit="×")
    assert "Your prediction from an earlier session: 3×." in capsys.readouterr().out
    speed.reveal(4)
    assert "In an earlier session you predicted 3×. Found: 4×." in capsys.readouterr().out
    predict("05.speed", 4, unit="×")
    assert "your first prediction, 3×, stays" in capsys.readouterr().out
    # What catch_up made while it hid the file.
    side = predictions.Prediction("05.side", choices={"faster": "It waits.", "slower": ""})
    side.reveal("slower")
    assert "In an earlier session you predicted slower" in capsys.readouterr().out
    predict("05.times", todo(), choices=TIMES).reveal("8")
    out = capsys.readouterr().out
    assert "Your prediction from an earlier session: 2." in out and "That counts the reads." in out
    for other in ("ms", "%"):
        predictions.Prediction("05.speed", other).reveal(4)
        assert "You made no prediction" in capsys.readouterr().out
    predictions.Prediction("05.side", choices=("A", "B")).reveal("A")
    assert "You made no prediction" in capsys.readouterr().out
    assert progress_file.progress_file().read_bytes() == before, "it is scored once"


def test_the_picture_holds_guess_and_range_in_the_right_order():
    text = predictions.scale(100, Found(4, 3, 5), "×")
    rect = float(re.search(r'<rect x="([\d.]+)', text)[1])
    guess = float(re.search(r'<path d="M([\d.]+)', text)[1])
    assert 60 <= rect < guess <= 340
    assert "found: 4×; you: 100×" in text
    for values in ((0, 0, 0), (1, 1, 1), (1e-9, 1e9, 2e9)):
        assert "nan" not in predictions.scale(values[0], Found(values[1], values[1], values[2]))


def test_importing_it_does_not_import_torch():
    code = "import sys; from course_utils import predict; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_two_notebooks_show_html_and_keep_one_file(tmp_path):
    cells = [
        "from course_utils import predict, todo\nguess = predict('05.{0}', {1}, unit='×')",
        "guess.reveal(4)",
    ]
    for name, answer in (("a", "4"), ("b", "todo()")):
        nb = execute(notebook(*(cell.format(name, answer) for cell in cells)), tmp_path)
        (shown,) = nb.cells[1].outputs
        assert "Found: 4×." in shown.data["text/html"] and "Found: 4×." in shown.data["text/plain"]
        assert ("<svg" in shown.data["text/html"]) == (name == "a")
    lines = (tmp_path / "progress.jsonl").read_text().splitlines()
    assert [json.loads(line)["prediction"] for line in lines] == ["05.a"]


def asked(*sources):
    nb = notebook(*sources)
    nb.metadata["course"] = {"lesson": "05"}
    found = [str(problem) for problem in anatomy_problems(nb, (), "04_x.ipynb")]
    return [problem for problem in found if "cell" in problem]


def test_a_lesson_ships_predictions_open_named_and_revealed():
    good = 'speed = predict("05.speed", todo(), unit="×")'
    assert asked(good, "x = 1\nspeed.reveal(4)") == []
    assert asked("import a\n" + good + "\nx = 2", "if x:\n    speed.reveal(4)") == []
    faults = {
        "never reveals speed": [good, "x = 1"],
        "unusual way": [good.replace("todo()", "4"), "speed.reveal(4)"],
        "begins with 05.": [good.replace("05.speed", "03.speed"), "speed.reveal(4)"],
        "is used once": [good, "speed.reveal(4)", good, "speed.reveal(4)"],
    }
    for says, cells in faults.items():
        (problem,) = asked(*cells)
        assert says in problem
