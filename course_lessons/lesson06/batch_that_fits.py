"""Two measurements and a straight line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited


def batch_that_fits(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, few + (capacity - low) * (many - few) // (high - low))


def _check_batch_that_fits(answer: Callable[..., Any], judge: Judge) -> None:
    mib = 2**20
    for small, large, capacity in (
        ((8, 500 * mib), (16, 600 * mib), 1000 * mib),
        ((10, 1000), (20, 1500), 1520),
        ((16, 600 * mib), (48, 1000 * mib), 12345 * mib),
        ((32, 700 * mib), (64, 1339 * mib), 700 * mib),
        ((32, 700 * mib), (64, 1339 * mib), 699 * mib),
        ((1, 31_000_000), (4, 31_900_000), 15_634_661_376),
        ((10, 1000), (20, 1500), 1549),
        ((10, 1000), (20, 1500), 1550),
        ((10, 1000), (20, 1500), 550),
        ((10, 1000), (20, 1500), 549),
        ((10, 1000), (20, 1500), 100),
        ((3, 1000), (10, 1100), 2205),
    ):
        right = batch_that_fits(small, large, capacity)
        got = judge.number(answer(small, large, capacity))
        if got == right:
            continue
        like = [name for name, f in _FIT_TWINS if f(small, large, capacity) == got]
        judge.no(
            "negative" if got < 0 else (like[0] if like else "wrong-batch"),
            seen=f"{got:g} for {small} and {large} in {capacity:,} bytes",
            expected=right,
        )


def fit_in_proportion(small, large, capacity):
    return capacity * large[0] // large[1]


def _fit_in_proportion_to_small(small, large, capacity):
    return capacity * small[0] // small[1]


def _fit_without_fixed_part(small, large, capacity):
    (few, low), (many, high) = small, large
    return capacity * (many - few) // (high - low)


def fit_rounded(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, round(few + (capacity - low) * (many - few) / (high - low)))


def fit_rounded_up(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, math.ceil(few + (capacity - low) * (many - few) / (high - low)))


def fit_on_top(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, (capacity - low) * (many - few) // (high - low))


def fit_fraction(small, large, capacity):
    (few, low), (many, high) = small, large
    return few + (capacity - low) * (many - few) / (high - low)


fit_whole_slope = edited(
    batch_that_fits, {") * (many - few) // (high - low": ") // ((high - low) // (many - few)"}
)


_FIT_TWINS = (
    ("no-fixed-part", fit_in_proportion),
    ("no-fixed-part", _fit_in_proportion_to_small),
    ("no-fixed-part", _fit_without_fixed_part),
    ("rounded", fit_rounded),
    ("rounded-up", fit_rounded_up),
    ("on-top", fit_on_top),
    ("fraction", fit_fraction),
    ("whole-slope", fit_whole_slope),
)


EXERCISE = Exercise(
    id="06.batch_that_fits",
    title="Two measurements and a straight line",
    level=2,
    minutes=8,
    task="""
Peak memory is a straight line in the batch size: a fixed part, and so many bytes a sample. Write
`batch_that_fits(small, large, capacity)`: `small` and `large` are measured pairs of (batch, peak bytes), and
back comes the largest whole batch whose peak on that line is at most `capacity`; 0 where none is.
""",
    hints=(
        "The slope is the difference in bytes over the difference in batch.",
        "The fixed part is the small peak less the slope times the small batch.",
        "Divide what is left of the capacity by the slope, and round down with `//`. Multiply before you "
        "divide, and the arithmetic stays exact.",
    ),
    reference=batch_that_fits,
    check_answer=_check_batch_that_fits,
    why="Two cheap runs replace a search, and a rule of three does not: it also shrinks the weights and the "
    "optimizer's state, which do not shrink.",
    diagnoses={
        "no-fixed-part": "That is a line through zero. A batch of none would still need the model.",
        "rounded": "A batch that is rounded up does not fit.",
        "rounded-up": "A batch that is rounded up does not fit.",
        "on-top": "That is how many samples fit on top of the small batch, not how many fit in all.",
        "fraction": "A batch is a whole number.",
        "whole-slope": "The bytes a sample need not be a whole number: only the batch is rounded.",
        "negative": "No batch is less than nothing: where the fixed part alone is too much, the answer is 0.",
        "wrong-batch": "That is not where the line meets the capacity.",
    },
)
