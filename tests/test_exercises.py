"""Every exercise both ways, how much its check lets through, and the checker against bad answers."""

from __future__ import annotations

import ast
import copy
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path

import nbformat
import pytest
import torch
import yaml
from answers import every_wrong, right, wrong
from harness import LESSONS, NOTEBOOKS, ROOT, TABLE, code_cells, execute, notebook, results
from mutation import mutants, survivors

from course_language import languages
from course_utils.exercises import Exercise, lesson, todo
from course_utils.exercises.judge import COMMON, Todo
from tools.authoring.solve import stubs

EXERCISES = [exercise for entry in LESSONS for exercise in lesson(entry.id)]
WRONG = [(exercise, *known) for exercise in EXERCISES for known in every_wrong(exercise)]
RIGHT = [(exercise, name) for exercise in EXERCISES for name in right(exercise)]
FLOOR = 0.9
EQUIVALENT = yaml.safe_load(Path(__file__).with_name("equivalent_mutants.yml").read_text(encoding="utf-8"))

DEAR = {
    *("07.frugal_step", "07.largest_batch", "09.accumulation_gap", "09.averaged", "09.prefetch"),
    *("09.steady_loop", "09.train_watched", *(f"08.mend_{letter}" for letter in "abcdef")),
}
"""Exercises whose answers are trained or timed. The quick tests leave their answers out, of the other wrong
ones eleven in twelve, and of the other right ones three in four."""


def known(*of, slow=False):
    """Return a pytest.param of an exercise, an answer's name and the answer; marked slow if its check is."""
    exercise, name, *_ = of
    marks = [pytest.mark.slow] * (slow or exercise.id in DEAR)
    return pytest.param(*of, id=f"{exercise.id}-{name}", marks=marks)


each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)


@functools.cache
def shipped(file):
    return nbformat.read(NOTEBOOKS / file, as_version=4)


def _right_answer(exercise):
    return exercise.reference() if exercise.wants_value else exercise.reference


# --- the exercises of the lessons -------------------------------------------------------------


@pytest.mark.parametrize("entry", LESSONS, ids=lambda entry: entry.id)
def test_a_lesson_has_exercises_and_each_has_its_place(entry):
    exercises = list(lesson(entry.id))
    assert exercises
    assert [stub.exercise for stub in stubs(shipped(entry.file), exercises)] == [e.id for e in exercises]


@pytest.mark.parametrize(
    "exercise",
    [
        pytest.param(exercise, id=exercise.id, marks=[pytest.mark.slow] * (exercise.id in DEAR))
        for exercise in EXERCISES
    ],
)
def test_reference_is_right(exercise):
    result = exercise.result(_right_answer(exercise))
    assert result.outcome == "right", result.bundle().text
    assert not result.printed
    assert result.text == exercise.why != ""


@pytest.mark.slow
@pytest.mark.parametrize("language", languages()[1:])
def test_references_are_right_where_all_is_imported_in_another_language(language):
    program = """
from course_utils.exercises import lesson
for number in range(12):
    for exercise in lesson(f"{number:02}"):
        answer = exercise.reference() if exercise.wants_value else exercise.reference
        print(exercise.id, exercise.result(answer).outcome)
"""
    env = {**os.environ, "COURSE_LANGUAGE": language}
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True)
    assert ran.stdout.splitlines() == [f"{exercise.id} right" for exercise in EXERCISES], ran.stderr[-2000:]


@each_exercise
def test_the_stub_in_the_notebook_is_not_tried(exercise):
    entry = next(entry for entry in LESSONS if entry.id == exercise.id.split(".")[0])
    (cell,) = (
        cell
        for cell in code_cells(shipped(entry.file))
        if cell.metadata.get("course", {}).get("exercise") == exercise.id
    )
    seen = []

    class Recorder:
        def check(self, answer):
            seen.append(exercise.result(answer).outcome)

    class Ex:
        def __getattr__(self, name):
            assert name == exercise.slug
            return Recorder()

    exec(cell.source, {**exercise.reference.__globals__, "todo": todo, "ex": Ex()})
    assert seen == ["not_tried"]
    assert exercise.result(todo()).outcome == "not_tried"


@pytest.mark.parametrize(
    ("exercise", "diagnosis", "answer"),
    [known(*wrong_answer, slow=place % 12 > 0) for place, wrong_answer in enumerate(WRONG)],
)
def test_wrong_answer_gets_its_own_diagnosis(exercise, diagnosis, answer):
    result = exercise.result(answer)
    assert (result.outcome, result.diagnosis) == ("not_yet", diagnosis), result.bundle().text
    assert result.text and any(value for _, value in result.details), "say what was seen"
    texts = dict(result.details)
    seen, expected = texts.get("Seen"), texts.get("Expected")
    alike = seen == expected or str(seen).startswith(f"{expected} for ")
    assert not alike, "two texts that are alike tell nothing"


@pytest.mark.parametrize(
    ("exercise", "name"),
    [known(*right_answer, slow=place % 4 > 0) for place, right_answer in enumerate(RIGHT)],
)
def test_a_right_answer_by_another_road_is_right(exercise, name):
    result = exercise.result(right(exercise)[name])
    assert result.outcome == "right", result.bundle().text


@each_exercise
def test_texts_and_numbers_of_an_exercise(exercise):
    assert exercise.id == f"{exercise.id[:2]}.{exercise.reference.__name__}"
    assert exercise.id[:2] in {entry.id for entry in LESSONS}
    assert exercise.level in (1, 2, 3)
    assert exercise.minutes > 0
    assert 2 <= len(exercise.hints) <= 3
    assert len(wrong(exercise)) >= 3
    assert set(exercise.diagnoses) <= set(wrong(exercise)) <= {*exercise.diagnoses, *COMMON}
    texts = [exercise.title, exercise.task, exercise.why, *exercise.hints]
    for text in [*texts, *exercise.diagnoses.values()]:
        assert isinstance(text, str) and text.strip()
    assert not _guesses(exercise.diagnoses)
    body = " ".join(ast.unparse(node) for node in ast.parse(exercise.source).body[0].body)
    shown = " ".join([exercise.task, *exercise.hints])
    assert " ".join(body.split()) not in " ".join(shown.split()), "hints do not hold the solution"


def _guesses(texts):
    """Return the diagnoses that contain "or"; each should name one fault."""
    return [key for key, text in texts.items() if re.search(r"\bor\b", re.sub("`[^`]*`", "", text))]


def test_a_common_diagnosis_names_one_fault():
    assert not _guesses(COMMON)


@each_exercise
def test_the_last_hint_has_an_example_that_runs(exercise, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", exercise.hints[-1], re.DOTALL)
    with torch.random.fork_rng(devices=[]):
        exec(program, {"torch": torch, "__name__": "__main__"})


@pytest.mark.everywhere
@each_exercise
def test_mutation_score(exercise, record_property):
    tried, alive = survivors(exercise)
    listed = {e["mutant"]: e["reason"] for e in EQUIVALENT if e["exercise"] == exercise.id}
    stale = set(listed) - {mutant.change for mutant in alive}
    assert not stale, f"listed as equivalent, but no survivor: {sorted(stale)}"
    assert all(reason.strip() for reason in listed.values())

    judged = tried - len(listed)
    missed = [mutant.change for mutant in alive if mutant.change not in listed]
    score = 1 - len(missed) / judged if judged else 0.0
    title = f"{TABLE}mutants refused by each check (equivalent ones listed by hand left out)"
    row = f"{exercise.id:28} {judged - len(missed):4} of {judged:4}  {score:5.0%}"
    record_property(title, f"{row}  equivalent {len(listed)}")
    for change in missed:
        record_property(title, f"    accepted: {change}")
    assert judged >= 3, "too few mutants to say anything"
    assert score >= FLOOR, "accepted:\n" + "\n".join(missed)


def test_every_equivalent_mutant_names_an_exercise():
    assert {entry["exercise"] for entry in EQUIVALENT} <= {exercise.id for exercise in EXERCISES}


# --- the mutant maker -------------------------------------------------------------------------


def test_mutants_hold_each_kind_of_fault():
    source = (
        "def f(a, b, flag=True):\n"
        '    """Docstring stays."""\n'
        "    with ctx():\n"
        "        a += 2\n"
        "    if a < b and not flag:\n"
        '        raise ValueError("wording stays")\n'
        '    return g(a, b, dim=-1, name="mean") / 2\n'
    )
    changes = {mutant.change for mutant in mutants(source)}
    for expected in (
        "def f(a, b, flag=True): => def f(a, b, flag=False):",
        "if a < b and (not flag): => if a <= b and (not flag):",
        "if a < b and (not flag): => if a < b or not flag:",
        "if a < b and (not flag): => if a < b and flag:",
        "if a < b and (not flag): => if not (a < b and (not flag)):",
        "return g(a, b, dim=-1, name='mean') / 2 => return None",
        "return g(a, b, dim=-1, name='mean') / 2 => return g(b, a, dim=-1, name='mean') / 2",
        "return g(a, b, dim=-1, name='mean') / 2 => return g(a, b, name='mean') / 2",
        "return g(a, b, dim=-1, name='mean') / 2 => return g(a, b, dim=1, name='mean') / 2",
        "return g(a, b, dim=-1, name='mean') / 2 => return g(a, b, dim=-1, name='mean') * 2",
        "return g(a, b, dim=-1, name='mean') / 2 => return g(a, b, dim=-1, name='mean') / 3",
        "a += 2 => a -= 2",
        "a += 2 => pass",
    ):
        assert expected in changes
    assert not any("stays" in change.split(" => ")[1] for change in changes)
    assert any(change.startswith("with ctx():; ") for change in changes)


# --- the checker against answers of every kind ------------------------------------------------


def add(a, b):
    return a + b


def _check_add(answer, judge):
    import torch

    for a, b in ((2, 3), (1, -1), (0, 7)):
        got = answer(a, b)
        judge.closest([judge.number(0 + got if getattr(got, "late", False) else got)], [float(a + b)], {})
    given = torch.ones(2, 3)
    got = judge.is_a(answer(given, given), torch.Tensor, "a tensor")
    if got.shape != given.shape:
        judge.no("shape", seen=tuple(got.shape), expected=tuple(given.shape))
    if sum(answer([1], [2])) != 3:
        judge.no("lists")


def _exercise(**changes) -> Exercise:
    fields = {
        "id": "99.add",
        "title": "Add",
        "task": "Add two things.",
        "level": 1,
        "minutes": 1,
        "hints": ("What sign adds?", "It is +."),
        "reference": add,
        "check_answer": _check_add,
        "why": "Sums matter.",
        "diagnoses": {"shape": "The shape is another.", "lists": "Lists add up end to end."},
        "limit": 1.0,
    }
    return Exercise(**(fields | changes))


def _spins(a, b):
    while True:
        pass


def _sleeps(a, b):
    time.sleep(3)


def _floods(a, b):
    while True:
        print("flood " * 1000)


def _raiser(error):
    def answer(a, b):
        raise error

    return answer


class OddError(Exception):
    def __str__(self):
        raise RuntimeError("no text for you")


class BadRepr:
    def __repr__(self):
        raise RuntimeError("no picture of me")


class Class:
    def __init__(self, a, b):
        self.a = a


def _mutates(a, b):
    if isinstance(a, list):
        a.append(9)
        return [1, 2]
    if hasattr(a, "add_"):
        a.add_(b)
        return a
    return a + b


def _wrong_shape(a, b):
    return (a + b)[0] if hasattr(a, "shape") else a + b


def _prints(a, b):
    print("looking at", a)
    return a + b


def _stops_iteration(a, b):
    return next(iter(()))


NASTY = {
    "print flood": (_floods, "not_yet", "too-slow"),
    "ValueError": (_raiser(ValueError("bad <b>value</b>")), "raised", "ValueError"),
    "exception without text": (_raiser(OddError()), "raised", "OddError"),
    "StopIteration": (_stops_iteration, "raised", "StopIteration"),
    "recursion": (lambda a, b: NASTY["recursion"][0](a, b), "raised", "RecursionError"),
    "failing repr": (lambda a, b: BadRepr(), "not_yet", "wrong-type"),
    "object with failing repr": (BadRepr(), "not_yet", "not-a-function"),
    "None": (None, "not_yet", "not-a-function"),
    "returns None": (lambda a, b: None, "not_yet", "returned-nothing"),
    "a string": ("add", "not_yet", "not-a-function"),
    "the result": (add(2, 3), "not_yet", "not-a-function"),
    "returns a string": (lambda a, b: "5", "not_yet", "wrong-type"),
    "returns True": (lambda a, b: True, "not_yet", "wrong-type"),
    "not a number": (lambda a, b: float("nan"), "not_yet", "wrong-value"),
    "one argument": (lambda a: a, "not_yet", "wrong-arguments"),
    "three arguments": (lambda a, b, c: a, "not_yet", "wrong-arguments"),
    "a class": (Class, "not_yet", "wrong-type"),
    "a class without arguments": (BadRepr, "not_yet", "wrong-arguments"),
    "a built-in": (max, "not_yet", "wrong-value"),
    "todo inside": (lambda a, b: todo(), "not_tried", ""),
    "todo()": (todo(), "not_tried", ""),
    "changes its input": (_mutates, "not_yet", "changed-input"),
    "wrong shape": (_wrong_shape, "not_yet", "shape"),
    "prints": (_prints, "right", ""),
    "extra arguments with defaults": (lambda a, b, c=0: a + b, "right", ""),
    "lambda": (lambda a, b: a + b, "right", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NASTY)
def test_nothing_escapes_from_an_answer(name, capsys):
    answer, outcome, diagnosis = NASTY[name]
    exercise = _exercise()
    start = time.monotonic()
    result = exercise.result(answer)
    assert time.monotonic() - start < exercise.limit + 5
    assert (result.outcome, result.diagnosis) == (outcome, diagnosis), result.bundle().text
    assert len(result.bundle().text) < 3000
    assert exercise.result(add).outcome == "right"
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("alarm", [True, False], ids=["alarm", "thread"])
def test_seconds_that_others_took_are_not_the_answers(alarm, monkeypatch):
    """Where many share a machine the processor works for an answer only now and then."""
    if not alarm:
        monkeypatch.delattr(signal, "setitimer")
    begin = time.monotonic()
    assert _exercise(limit=0.3).result(_sleeps).diagnosis == "too-slow"
    # It waits for itself: nothing to wait for.
    assert time.monotonic() - begin < (1 if alarm else 3)

    monkeypatch.setattr(time, "process_time", lambda: time.monotonic() / 4)
    begin = time.monotonic()

    def works(a, b):
        while time.monotonic() - begin < 0.6:
            pass
        return a + b

    assert _exercise(limit=0.3).result(works).outcome == "right"
    begin = time.monotonic()
    assert _exercise(limit=0.3).result(_spins).diagnosis == "too-slow"
    assert time.monotonic() - begin > 0.8


def test_an_answer_that_makes_tensors_without_end_is_stopped_in_time(simulated):
    """Nearly every moment of such a loop is in the simulated device's code, where nothing may be raised."""
    simulated.enable()

    def fills(a, b):
        while True:
            torch.ones(2 * 10**7)

    begin = time.monotonic()
    assert _exercise(limit=0.3).result(fills).diagnosis == "too-slow"
    assert time.monotonic() - begin < 5


def test_what_an_answer_printed_is_shown():
    text = _exercise().result(_prints).bundle().text
    assert "Your code printed: looking at 2" in text


def test_an_error_is_shown_with_its_line_and_as_plain_text():
    bundle = _exercise().result(_raiser(ValueError("bad <b>value</b>"))).bundle()
    assert "ValueError: bad <b>value</b>" in bundle.text
    assert "raise error" in bundle.text
    assert "&lt;b&gt;value" in bundle.html
    assert "<b>value" not in bundle.html


def test_a_refusal_says_what_was_seen_and_expected():
    text = _exercise().result(lambda a, b: a * b).bundle().text
    assert "Seen: 6" in text
    assert "Expected: 5" in text


def test_an_exercise_meant_to_change_its_input_may():
    def check(answer, judge):
        given = [1]
        answer(given, [2])
        if given != [1, 9]:
            judge.no("lists")

    assert _exercise(check_answer=check, may_change=True).result(_mutates).outcome == "right"
    assert _exercise(check_answer=check).result(_mutates).diagnosis == "changed-input"


@pytest.mark.parametrize("change", [False, True])
def test_an_ordered_dict_counts_as_changed_only_where_it_was(change):
    def answer(a, b):
        if change:
            a["weight"] = 3
        return 6

    def check(answer, judge):
        answer(OrderedDict(weight=2), 3)

    outcome = _exercise(check_answer=check).result(answer).outcome
    assert outcome == ("not_yet" if change else "right")


def add_value():
    return 42


def test_an_exercise_that_asks_for_a_value():
    def check(answer, judge):
        judge.closest([judge.number(answer)], [42.0], {})

    exercise = _exercise(reference=add_value, check_answer=check)
    assert exercise.result(42).outcome == "right"
    assert exercise.result(43).diagnosis == "wrong-value"
    assert exercise.result(None).diagnosis == "no-value"
    assert exercise.result(add_value).diagnosis == "not-a-value"
    assert isinstance(todo(), Todo)
    assert exercise.result(todo()).outcome == "not_tried"


def test_hints_come_in_order_and_the_last_one_stays(capsys):
    exercise = copy.copy(_exercise())
    for _ in range(4):
        exercise.hint()
    said = capsys.readouterr().out
    places = [said.index(part) for part in ("Hint 1 of 2", "Hint 2 of 2", "last hint")]
    assert places == sorted(places)
    assert said.count("Hint 1 of 2") == 1
    assert said.count("Hint 2 of 2") == 3 and said.count("last hint") == 2


def test_the_solution_is_the_source_of_the_reference(capsys):
    _exercise().solution()
    said = capsys.readouterr().out
    assert "def add(a, b):\n    return a + b" in said
    assert "Sums matter." in said


def two_lines():
    half = 21
    return {"answer": 2 * half}


def test_the_solution_of_a_value_is_what_the_learner_would_write(capsys):
    _exercise(reference=two_lines, check_answer=lambda answer, judge: None).solution()
    said = capsys.readouterr().out
    assert '```python\nhalf = 21\nanswer = {"answer": 2 * half}\n```' in said


def test_hints_are_mentioned_once_and_not_to_those_who_were_right(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.jsonl"))
    exercise = _exercise()
    for answer in (add, lambda a, b: a * b, lambda a, b: a - b, add):
        exercise.check(answer)
    shown = capsys.readouterr().out.split("· 99.add")[1:]
    assert ["`ex.add.hint()`" in text for text in shown] == [False, True, False, False]


def test_an_unknown_exercise_is_answered_with_the_known_ones():
    with pytest.raises(AttributeError, match="has no exercise 'nothing'"):
        lesson("99").nothing  # noqa: B018


KERNEL_SETUP = """
import os, sys, time
sys.path[:0] = [{tests!r}, {root!r}, {root!r} + '/simgpu/tests']
from test_exercises import _exercise
exercise = _exercise()
"""


@pytest.mark.slow
def test_a_real_kernel_survives_bad_answers(tmp_path):
    here = Path(__file__).parent
    nb = notebook(
        KERNEL_SETUP.format(tests=str(here), root=str(here.parent)),
        "def add(a, b):\n    while True:\n        print('x' * 100)\nexercise.check(add)",
        "def add(a, b):\n    return a / 0\nexercise.check(add)",
        "def add(a, b):\n    raise SystemExit\nexercise.check(add)",
        "class Sum:\n    late = True\n\n    def __radd__(self, other):\n        return other.nothing\n\n"
        "def add(a, b):\n    return Sum()\nexercise.check(add)",
        "def add(a, b):\n    return sum([a, b])\nexercise.check(lambda a, b: a + b)",
        "print('still here')",
    )
    execute(nb, tmp_path)
    setup, *checks, last = code_cells(nb)
    assert setup.outputs == []
    assert [list(results(_only(cell)).values()) for cell in checks] == [
        ["not_yet"],
        ["raised"],
        ["raised"],
        ["raised"],
        ["right"],
    ]
    shown = checks[1].outputs[0].data["text/plain"]
    assert "Line 2, in add: return a / 0" in shown
    assert "ZeroDivisionError" in shown
    inside = checks[3].outputs[0].data["text/plain"]
    assert "Line 5, in __radd__: return other.nothing" in inside
    assert last.outputs[0].text == "still here\n"
    assert all(output.output_type == "display_data" for c in checks for output in c.outputs)
    progress = (tmp_path / "progress.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(progress) == 5


def _only(cell):
    return nbformat.v4.new_notebook(cells=[cell])
