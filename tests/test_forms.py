"""The short form of a check, and functions written as an edit of another."""

from __future__ import annotations

import inspect
import itertools

import pytest
from test_exercises import EXERCISES

from course_utils.exercises import Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases, several
from course_utils.exercises.judge import NotYet

# A check that looks at more as well has its form in a name of its module.
FORMS = [
    (exercise, form)
    for exercise in EXERCISES
    for form in {
        id(found): found
        for found in (exercise.check_answer, *exercise.reference.__globals__.values())
        if isinstance(found, OverCases)
    }.values()
]


def average(numbers, skip):
    total = 0.0
    for number in numbers:
        if number != skip:
            total += number
    return total / len(numbers)


def told(check, answer):
    """The diagnosis of an answer, what was seen and what was expected; nothing where it is right."""
    try:
        check(answer, Judge())
    except NotYet as refusal:
        return refusal.diagnosis, refusal.seen, refusal.expected
    return None


CASES = (([1.0, 2.0, 3.0], 9), ([2.0], 2), ([4.0, 4.0, 1.0], 1))
CHECK = OverCases(
    average,
    CASES,
    {
        "sum": lambda numbers, skip: sum(n for n in numbers if n != skip),
        "keeps": edited(average, {"if number != skip:": "if True:"}),
        "first": (lambda numbers, skip: numbers[0], lambda numbers, skip: numbers[-1]),
        "breaks": lambda numbers, skip: numbers[3],
    },
    otherwise=lambda got, right, numbers, skip: "high" if got > right else "low",
)


def test_an_answer_gets_the_diagnosis_of_the_twin_that_it_follows_on_all_cases():
    assert told(CHECK, average) is None
    assert told(CHECK, lambda n, s: sum(x for x in n if x != s)) == (
        "sum",
        "6 for numbers=[1.0, 2.0, 3.0], skip=9",
        "2",
    )
    assert told(CHECK, lambda n, s: sum(n) / len(n))[0] == "keeps"
    assert told(CHECK, lambda n, s: n[-1])[0] == "first"
    # Like "first" on the first wrong case alone: a guess that the other cases refute is not told.
    assert told(CHECK, lambda n, s: 1.0)[0] == "low"
    assert told(CHECK, lambda n, s: 9.0)[0] == "high"


def test_what_an_answer_does_after_its_first_wrong_case_is_no_reason_to_stop():
    def breaks(numbers, skip):
        return 100.0 / (len(numbers) - 1) if len(numbers) > 2 else numbers[9]

    assert told(CHECK, breaks)[0] == "high"
    with pytest.raises(IndexError):
        told(CHECK, lambda numbers, skip: numbers[9])


@pytest.mark.parametrize("form", [f for _, f in FORMS], ids=[e.id for e, _ in FORMS])
def test_twins_are_told_apart_by_at_least_two_cases(form):
    def values(function):
        for case in list(form.cases()) if callable(form.cases) else form.cases:
            try:
                yield function(*case)
            except Exception as error:  # noqa: BLE001  (an error is a result that is like no other)
                yield type(error)

    def apart(one, other):
        off = 0
        for a, b in zip(one, other, strict=True):
            try:
                off += not form.alike(a, b)
            except Exception:  # noqa: BLE001  (values of other kinds are apart)
                off += 1
        return off

    right = list(values(form.reference))
    twins = [(name, list(values(f))) for name, fs in form.twins.items() for f in several(fs)]
    alike = [name for name, twin in twins if apart(twin, right) < 2]
    alike += [
        (name, other)
        for (name, one), (other, two) in itertools.combinations(twins, 2)
        if name != other and apart(one, two) < 2
    ]
    assert not alike


@pytest.mark.parametrize(
    ("edits", "lines"),
    [
        ({"total / len(numbers)": "total"}, ["    return total"]),
        (
            {"        if number != skip:\n            total += number": "        total += number"},
            None,
        ),
        (
            {"if number != skip:\n    total += number": "total += number"},
            ["        total += number"],
        ),
        ({"total = 0.0": ""}, []),
        (
            {"total = 0.0": "total = 0.0\nnumbers = list(numbers)"},
            ["    total = 0.0", "    numbers = list(numbers)"],
        ),
    ],
)
def test_an_edit_replaces_text_and_keeps_the_margin(edits, lines):
    if lines is None:  # a text of several lines stands at the margin
        with pytest.raises(ValueError, match="0 times"):
            edited(average, edits)
        return
    made = inspect.getsource(edited(average, edits)).splitlines()
    before = inspect.getsource(average).splitlines()
    assert [line for line in made if line not in before or line in lines] == lines
    assert len(made) - len(lines) == len(before) - sum(old.count("\n") + 1 for old in edits)


def squares(numbers):
    return [n**2 for n in numbers] + [n**2 for n in numbers if n**2]


def test_an_edit_of_what_is_not_there_once_is_refused():
    with pytest.raises(ValueError, match="2 times in the source, not once: 'for n in numbers'"):
        edited(squares, {"for n in numbers": "for n in range(3)"})
    with pytest.raises(ValueError, match="0 times"):
        edited(average, {"mean": "median"})


def test_an_edited_function_knows_its_module_and_the_names_that_it_is_given():
    made = edited(average, {"return total / len(numbers)": "return told, total, extra"}, extra=3)
    assert made([1.0], 0) == (told, 1.0, 3)
    assert average([1.0], 0) == 1.0
