"""Before the device asserts."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases

from .checking import plain


def bad_labels(labels, classes, ignore_index=-100):
    outside = (labels < 0) | (labels >= classes)
    bad = outside & (labels != ignore_index)
    return bad.nonzero().flatten().tolist()


def _fails(label: int, classes: int, ignore_index: int) -> bool:
    """Whether PyTorch's own loss refuses the label."""
    target = torch.tensor([label])
    try:
        F.cross_entropy(torch.zeros(1, classes), target, ignore_index=ignore_index)
    except (IndexError, RuntimeError):
        return True
    return False


def _refused(labels, classes, ignore_index=-100):
    return [i for i, y in enumerate(labels.tolist()) if _fails(y, classes, ignore_index)]


_CASES = [
    (torch.tensor(labels, dtype=torch.int64), *rest)
    for labels, *rest in (
        ([1, 2, 3, 10, 4, 10], 10),  # counted from 1
        ([0, 9, 5], 10),
        ([3, -1, 0, -100, 7], 5),
        ([20, 255, 3, 21, -100, -1], 21, 255),
        ([0, 1, 2], 2, 0),
        ([], 3),
    )
]


def _draw(rng: Random) -> tuple[Tensor, int, int]:
    classes = rng.randint(2, 6)
    ignore = rng.choice((-100, -100, -1, 0, 255, classes))
    some = [*range(-2, classes + 3), -100, ignore, ignore]
    labels = [rng.choice(some) for _ in range(rng.randint(1, 6))]
    return torch.tensor(labels), classes, ignore


_OUTSIDE = "(labels < 0) | (labels >= classes)"
_BAD = "outside & (labels != ignore_index)"
_TWINS = {
    "nested": lambda *case: [[row] for row in bad_labels(*case)],
    "values": (
        lambda labels, *rest: labels[bad_labels(labels, *rest)].tolist(),
        lambda labels, *rest: sorted(set(labels[bad_labels(labels, *rest)].tolist())),
    ),
    "shifted": lambda labels, classes, ignore_index=-100: bad_labels(
        labels[labels != ignore_index], classes, ignore_index
    ),
    "one-by-one": lambda *case: [row + 1 for row in bad_labels(*case)],
    "equal-labels": lambda labels, *rest: [
        labels.tolist().index(labels[row]) for row in bad_labels(labels, *rest)
    ],
    "first-only": lambda *case: bad_labels(*case)[:1],
    "top-forgotten": {"labels >= classes": "labels > classes"},
    "last-class": {"labels >= classes": "labels >= classes - 1"},
    "class-zero": {"labels < 0": "labels <= 0"},
    "both-at-once": {_OUTSIDE: _OUTSIDE.replace("|", "&")},
    "one-side": (
        {_OUTSIDE: f"{_OUTSIDE} & (labels != ignore_index)", _BAD: "outside"},
        {"(labels < 0)": "(labels < 0) & (labels != ignore_index)", _BAD: "outside"},
    ),
    "negative-forgotten": ({"(labels < 0) | ": ""}, {"(labels < 0) | ": "", _BAD: "outside"}),
    "too-large-forgotten": {" | (labels >= classes)": ""},
    "ignored-is-bad": {_BAD: "outside"},
    "only-ignored": {_BAD: "labels == ignore_index"},
    "fixed-ignore": ({"!= ignore_index": "!= -100"}, {_BAD: f"{_BAD} & (labels != -100)"}),
    "good-ones": {"bad.nonzero()": "(~bad).nonzero()"},
}


def _read(judge: Judge, got: Any) -> list[Any]:
    rows = judge.listed(got, "a list of row numbers")
    if isinstance(got, Tensor):
        judge.no("tensor", seen=got, expected="a list of row numbers")
    return [plain(row) for row in rows]


def _alike(got: list[Any], right: list[Any]) -> bool:
    return got == right and not any(row is True for row in got)


def _otherwise(rows: list[Any], right: list[int], labels: Tensor, *_: Any) -> str:
    if bool in map(type, rows):
        return "mask"
    if not set(rows) <= set(range(len(labels))):
        return "no-such-row"
    if sorted(set(rows)) == right:
        return "order"
    return "a-good-one" if set(rows) - set(right) else "one-missing"


def _situation(labels: Tensor, classes: int, ignore_index: int = -100) -> str:
    return f"labels {labels.tolist()}, {classes} classes, ignore_index {ignore_index}"


EXERCISE = Exercise(
    id="08.bad_labels",
    title="Before the device asserts",
    level=1,
    minutes=5,
    task="""
A label out of range stops a GPU with `device-side assert triggered`, at a later and innocent line. Write
`bad_labels(labels, classes, ignore_index=-100)`: the ascending list of the row numbers whose label `F.cross_entropy`
would refuse. `labels` is a tensor of integers of one dimension. Allowed are 0 to `classes` - 1, and `ignore_index`.
""",
    hints=(
        "There are two ways to be out of range, and one exception.",
        "Combine masks with `|` and `&`, in parentheses. `.nonzero()` turns a mask into row numbers.",
    ),
    reference=bad_labels,
    check_answer=OverCases(
        _refused,
        _CASES,
        twins_of(bad_labels, _TWINS),
        draw=_draw,
        read=_read,
        alike=_alike,
        otherwise=_otherwise,
        situation=_situation,
    ),
    why="Run it once over a new data set, before training. Labels that count from 1, and a 255 for “no label” in "
    "segmentation masks, are the two usual finds. After an assert, restart and rerun one batch on the CPU: "
    "there the message names the line and the label.",
    diagnoses={
        "top-forgotten": "With `classes` classes the labels go from 0 to `classes` - 1. The number `classes` itself is "
        "out of range.",
        "negative-forgotten": "A negative label is out of range too, unless it is `ignore_index`.",
        "ignored-is-bad": "A label equal to `ignore_index` is left out of the loss and breaks nothing.",
        "fixed-ignore": "The value to ignore is an argument. -100 is only its default.",
        "last-class": "The label `classes` - 1 is the last one that is in range.",
        "class-zero": "The label 0 is in range: it is the first class.",
        "both-at-once": "No label is too small and too large at once. Combine the two masks with `|`.",
        "one-side": "The exception holds for one of the two sides only. (`&` binds before `|`.)",
        "too-large-forgotten": "A label of `classes` and above is out of range too.",
        "only-ignored": "These are the rows of the labels that are ignored.",
        "one-by-one": "The first row has the number 0.",
        "equal-labels": "Where two rows have the same label, you gave the first one's number twice.",
        "first-only": "That is the first of these rows. All of them are asked for.",
        "good-ones": "These are the rows that are fine.",
        "values": "These are the labels. The row numbers are asked for.",
        "mask": "This is a mask. The row numbers are asked for.",
        "nested": "Each row number stands in a list of its own: `nonzero()` has one column for each dimension of the mask. "
        "Here there is one, so flatten it.",
        "tensor": "Return a list of Python numbers, not a tensor.",
        "shifted": "You numbered the rows after the ignored ones were taken out. Count them too.",
        "no-such-row": "Not everything in your list is the number of a row.",
        "a-good-one": "A row is in your list whose label the loss takes.",
        "one-missing": "A row whose label the loss refuses is not in your list.",
        "order": "The rows are right. Each should be there once, in ascending order.",
    },
)
