"""The short form of a check, and functions written as an edit of another."""

import inspect
import itertools

import pytest
import torch
from test_exercises import EXERCISES

from course_lessons.shared.edited import edited
from course_utils.exercises import Judge, lesson
from course_utils.exercises.forms import ComparesToReference, as_tuple
from course_utils.exercises.judge import NotYet
from course_utils.exercises.values import agree, diff_texts, nearly, same

# A check that looks at more as well has its form in a name of its module.
FORMS = [
    (exercise, form)
    for exercise in EXERCISES
    for form in {
        id(found): found
        for found in (exercise.check_answer, *exercise.reference.__globals__.values())
        if isinstance(found, ComparesToReference)
    }.values()
]


def average(numbers, skip):
    total = 0.0
    for number in numbers:
        if number != skip:
            total += number
    return total / len(numbers)


def refusal_of(check, answer):
    """Return an answer's diagnosis, what was observed and what was expected; None if it is right."""
    try:
        check(answer, Judge())
    except NotYet as refusal:
        return refusal.diagnosis, refusal.seen, refusal.expected
    return None


CASES = (([1.0, 2.0, 3.0], 9), ([2.0], 2), ([4.0, 4.0, 1.0], 1))
CHECK = ComparesToReference(
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


def test_an_answer_gets_the_diagnosis_of_the_mistake_that_it_agrees_with_on_all_cases():
    assert refusal_of(CHECK, average) is None
    assert refusal_of(CHECK, lambda n, s: sum(x for x in n if x != s)) == (
        "sum",
        "6 for numbers=[1.0, 2.0, 3.0], skip=9",
        "2",
    )
    assert refusal_of(CHECK, lambda n, s: sum(n) / len(n))[0] == "keeps"
    assert refusal_of(CHECK, lambda n, s: n[-1])[0] == "first"
    # Like "first" on one case alone: a guess that the other cases refute is not told.
    assert refusal_of(CHECK, lambda n, s: 1.0)[0] == "low"
    assert refusal_of(CHECK, lambda n, s: 9.0)[0] == "high"


def test_the_case_that_is_shown_is_one_where_the_fault_that_is_told_alone_is_wrong():
    add = lambda a, b: a + b  # noqa: E731
    both = lambda a, b: a - b + (a == 1)  # noqa: E731
    form = ComparesToReference(
        add,
        ((1, 0), (1, 2), (3, 4), (5, 6)),
        {"minus": (lambda a, b: a - b, both), "one": lambda a, b: a + b + (a == 1)},
    )
    assert refusal_of(form, both) == ("minus", "0 for a=1, b=2", "3")


def test_none_is_shown_as_a_value_like_any_other():
    form = ComparesToReference(
        lambda size: None if size > 2 else [size],
        ((1,), (3,), (4,)),
        {},
        read=lambda judge, got: got,
    )
    assert refusal_of(form, lambda size: None) == ("wrong-value", "None for size=1", "[1]")
    assert refusal_of(form, lambda size: [size]) == ("wrong-value", "[3] for size=3", "None")


def test_an_error_is_shown_with_the_case_in_which_it_came():
    exercise = lesson("01").smallest_winner
    looks_first = edited(exercise.reference, {"for n in sizes": "sizes[0]\nfor n in sizes"})
    result = exercise.result(looks_first)
    assert (result.outcome, result.diagnosis) == ("raised", "IndexError")
    assert dict(result.details)["Case"].startswith("sizes [], CPU 1e+11 FLOP/s")


def test_a_check_computes_on_one_thread_and_gives_the_others_back():
    seen = set()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        looks = edited(
            lesson("05").lost.reference,
            {"nonzero =": "seen.add(torch.get_num_threads())\nnonzero ="},
            seen=seen,
        )
        assert lesson("05").lost.result(looks).outcome == "right"
        assert seen == {1} and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_an_answer_does_after_its_first_wrong_case_is_no_reason_to_stop():
    def breaks(numbers, skip):
        return 100.0 / (len(numbers) - 1) if len(numbers) > 2 else numbers[9]

    assert refusal_of(CHECK, breaks)[0] == "high"
    with pytest.raises(IndexError):
        refusal_of(CHECK, lambda numbers, skip: numbers[9])


def _train(weights, steps):
    for step in range(steps):
        weights[0] += step


TRAINING = ComparesToReference(
    _train,
    cases=lambda: [([0.0], 3), ([1.0], 4)],
    known_mistakes={"first": edited(_train, {"range(steps)": "range(1, steps + 1)"})},
    look=lambda got, weights, steps: list(weights),
    draw=lambda random: ([random.random()], random.randrange(2, 9)),
    alike=nearly(),
)


def test_what_a_call_left_of_its_case_can_be_judged_and_cases_are_drawn():
    import numpy as np

    def adds(weights, steps):
        weights[0] += sum(np.arange(steps))

    assert len(TRAINING.all_cases()) == 42
    assert TRAINING.all_cases() == TRAINING.all_cases()
    assert refusal_of(TRAINING, adds) is None

    def more(weights, steps):
        adds(weights, steps)
        weights[0] += steps > 3

    diagnosis, seen, expected = refusal_of(TRAINING, more)
    assert (diagnosis, seen, expected) == (
        "wrong-value",
        "[np.float64(8.0)] for weights=[1.0], steps=4",
        "[7.0]",
    )

    def from_one(weights, steps):
        weights[0] += sum(range(1, steps + 1))

    assert refusal_of(TRAINING, from_one)[0] == "first"


def test_an_answer_that_is_wrong_in_one_drawn_case_alone_is_refused():
    hidden = TRAINING.all_cases()[17][1]
    right = {}

    def almost(weights, steps):
        right[steps] = right.get(steps, 0) + 1
        weights[0] += sum(range(steps)) + (steps == hidden and len(right) > 3)

    assert refusal_of(TRAINING, almost)[0] == "wrong-value"


def test_two_values_are_cut_to_where_they_differ():
    import torch

    pairs = [
        (torch.zeros(9, 9), torch.eye(9), ("at [0][0]: 0", "at [0][0]: 1")),
        ({"w": [1.0] * 30}, {"w": [1.0] * 29 + [2.0]}, ("at ['w'][29]: 1", "at ['w'][29]: 2")),
        (torch.zeros(30), torch.zeros(31), ("shape (30,)", "shape (31,)")),
        ([1.0] * 50, [1.0] * 51, ("50 things", "51 things")),
        ("a text", 3, ("a text", "3")),
        ([1, 2], [1, 3], ("[1, 2]", "[1, 3]")),
    ]
    for seen, expected, texts in pairs:
        assert diff_texts(seen, expected) == texts
    nearby = (
        0.1 + torch.zeros(40, dtype=torch.float64),
        0.1000001 + torch.zeros(40, dtype=torch.float64),
    )
    assert diff_texts(*nearby) == ("at [0]: 0.1", "at [0]: 0.1000001")
    assert diff_texts(torch.zeros(40), torch.zeros(40, dtype=torch.float64)) == (
        "at [0]: torch.float32 on cpu",
        "at [0]: torch.float64 on cpu",
    )
    nan = torch.tensor([1.0, float("nan")])
    assert same(nan, nan.clone())
    assert not same(nan, torch.tensor([2.0, float("nan")]))
    assert nearly()([1.0, nan], (1.0 + 1e-7, nan.double()))
    assert not nearly()([1.0], [1.0, 1.0])


@pytest.mark.parametrize("form", [f for _, f in FORMS], ids=[e.id for e, _ in FORMS])
def test_known_mistakes_differ_on_at_least_two_cases(form):
    def diff_texts(one, other):
        return sum(not agree(form.alike, a, b) for a, b in zip(one, other, strict=True))

    right = form.values(form.reference)
    known_mistakes = [
        (n, form.values(f, safe=True)) for n, fs in form.known_mistakes.items() for f in as_tuple(fs)
    ]
    alike = [name for name, mistake in known_mistakes if diff_texts(mistake, right) < 2]
    alike += [
        (name, other)
        for (name, one), (other, two) in itertools.combinations(known_mistakes, 2)
        if name != other and diff_texts(one, two) < 2
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
    with pytest.raises(ValueError, match="overlap"):
        edited(average, {"total += number": "pass", "+= number": "+= 1"})


def test_an_edited_function_knows_its_module_and_the_names_that_it_is_given():
    made = edited(average, {"return total / len(numbers)": "return refusal_of, total, extra"}, extra=3)
    assert made([1.0], 0) == (refusal_of, 1.0, 3)
    assert average([1.0], 0) == 1.0


def test_a_list_may_be_a_tensor_or_an_array_but_not_a_vast_one():
    judge = Judge()
    for right in ([1, 2], (1, 2), torch.tensor([1, 2]), torch.tensor([1, 2]).numpy()):
        assert list(judge.listed(right, "two numbers")) == [1, 2]
    for wrong in (None, 3, "12", torch.tensor(3), torch.ones(1).expand(10**5, 10**5)):
        with pytest.raises(NotYet):  # the last as a list would fill the memory
            judge.listed(wrong, "two numbers")
