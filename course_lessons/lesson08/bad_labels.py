"""Before the device asserts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge


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


BAD_TWINS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "top-forgotten": lambda y, n, skip: ((y < 0) | (y > n)) & (y != skip),
    "negative-forgotten": lambda y, n, skip: (y >= n) & (y != skip),
    "ignored-is-bad": lambda y, n, skip: (y < 0) | (y >= n),
    "fixed-ignore": lambda y, n, skip: ((y < 0) | (y >= n)) & (y != -100),
    "all-negative-ignored": lambda y, n, skip: (y >= n) & (y != skip),
    "good-ones": lambda y, n, skip: ~(((y < 0) | (y >= n)) & (y != skip)),
}


def _check_bad_labels(answer: Callable[..., Any], judge: Judge) -> None:
    for labels, classes, skip in (
        ([1, 2, 3, 10, 4, 10], 10, None),  # counted from 1
        ([0, 9, 5], 10, None),
        ([3, -1, 0, -100, 7], 5, None),
        ([20, 255, 3, 21, -100, -1], 21, 255),
        ([0, 1, 2], 2, 0),
        ([1, 0, 1], 2, None),
        ([], 3, None),
    ):
        y = torch.tensor(labels, dtype=torch.int64)
        got = answer(y, classes) if skip is None else answer(y, classes, skip)
        given = -100 if skip is None else skip
        right = [i for i, label in enumerate(labels) if _fails(label, classes, given)]
        rows = got.tolist() if isinstance(got, Tensor) else got
        judge.is_a(rows, list, "a list of row numbers")
        if rows == right and not isinstance(got, Tensor) and not any(r is True for r in rows):
            continue
        if isinstance(got, Tensor):
            judge.no("tensor", seen=got, expected=right)
        if right and rows == [[row] for row in right]:
            judge.no("nested", seen=rows, expected=right)
        if any(isinstance(row, bool) for row in rows):
            judge.no("mask", seen=rows, expected=right)
        if right and rows == y[right].tolist():
            judge.no("values", seen=rows, expected=right)
        like = [
            n
            for n, f in BAD_TWINS.items()
            if f(y, classes, given).nonzero().flatten().tolist() == rows
        ]
        judge.no(
            like[0] if like else "wrong-rows",
            seen=f"{rows} for labels {labels}, {classes} classes, ignore_index {given}",
            expected=right,
        )


EXERCISE = Exercise(
    id="08.bad_labels",
    title="Before the device asserts",
    level=1,
    minutes=5,
    task="""
A label that is out of range stops a GPU with `device-side assert triggered`, at a later and innocent line, and every
call after it fails until the process is restarted. Write `bad_labels(labels, classes, ignore_index=-100)`: the list
of the row numbers whose label `F.cross_entropy` would refuse. `labels` is a tensor of integers of one dimension;
`ignore_index` is the one value that is allowed besides 0 to `classes` - 1.
""",
    hints=(
        "There are two ways to be out of range, and one exception.",
        "Combine masks with `|` and `&`, in parentheses. `.nonzero()` turns a mask into row numbers.",
    ),
    reference=bad_labels,
    check_answer=_check_bad_labels,
    why="Run it once over a new data set, before training. Labels that count from 1, and a 255 for “no label” in "
    "segmentation masks, are the two usual finds. After an assert, restart and rerun one batch on the CPU: "
    "there the message names the line and the label.",
    diagnoses={
        "top-forgotten": "With `classes` classes the labels go from 0 to `classes` - 1. The number `classes` itself is "
        "out of range.",
        "negative-forgotten": "A negative label is out of range too, unless it is `ignore_index`.",
        "ignored-is-bad": "A label equal to `ignore_index` is left out of the loss and breaks nothing.",
        "fixed-ignore": "The value to ignore is an argument. -100 is only its default.",
        "all-negative-ignored": "Only `ignore_index` is ignored, not every negative label.",
        "good-ones": "These are the rows that are fine.",
        "values": "These are the labels. The row numbers are asked for.",
        "mask": "This is a mask. The row numbers are asked for.",
        "nested": "Each row number stands in a list of its own: `nonzero()` has one column for each dimension of the mask. "
        "Here there is one, so flatten it.",
        "tensor": "Return a list of Python numbers, not a tensor.",
        "wrong-rows": "Those are not the rows that the loss refuses.",
    },
)
