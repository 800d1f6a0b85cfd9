"""Two measurements and a straight line."""

from __future__ import annotations

import random

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases


def batch_that_fits(small, large, capacity):
    (few, low), (many, high) = small, large
    return max(0, few + (capacity - low) * (many - few) // (high - low))


_MIB = 2**20

_CASES = (
    ((8, 500 * _MIB), (16, 600 * _MIB), 1000 * _MIB),
    ((10, 1000), (20, 1500), 1520),
    ((16, 600 * _MIB), (48, 1000 * _MIB), 12345 * _MIB),
    ((32, 700 * _MIB), (64, 1339 * _MIB), 700 * _MIB),
    ((32, 700 * _MIB), (64, 1339 * _MIB), 699 * _MIB),
    ((1, 31_000_000), (4, 31_900_000), 15_634_661_376),
    ((10, 1000), (20, 1500), 1549),
    ((10, 1000), (20, 1500), 1550),
    ((10, 1000), (20, 1500), 550),
    ((10, 1000), (20, 1500), 549),
    ((10, 1000), (20, 1500), 100),
    ((3, 1000), (10, 1100), 2205),
    ((3, 1000), (10, 1150), 2500),
    ((3, 1000), (10, 1100), 900),
)


def _draw(source: random.Random) -> tuple[tuple[int, int], tuple[int, int], int]:
    few, step = source.randint(1, 64), source.randint(1, 64)
    low, slope = source.randint(10**6, 10**8), source.randint(10**4, 10**6)
    high = low + slope * step + source.randint(0, step - 1)
    return (
        (few, low),
        (few + step, high),
        low + source.randint(-3, 90) * slope + source.randint(1, 9999),
    )


_LINE = "few + (capacity - low) * (many - few) // (high - low)"
_TURNED = "((many - few) / (high - low))"
_SLOPE = "((high - low) / (many - few))"
_TWINS = {
    "no-fixed-part": (
        lambda small, large, capacity: capacity * large[0] // large[1],
        lambda small, large, capacity: capacity * small[0] // small[1],
        {"few + (capacity - low)": "capacity"},
        {_LINE: f"int(capacity // {_SLOPE})"},
    ),
    "rounded": {_LINE: f"round({_LINE.replace('//', '/')})"},
    "rounded-up": {"few + (capacity - low)": "few - (low - capacity)"},
    "on-top": {"few + (": "("},
    "on-top-of-large": {"few + (capacity - low)": "(capacity - high)"},
    "bytes-first": {"(few, low), (many, high) =": "(low, few), (high, many) ="},
    "upside-down": {_LINE: f"int((capacity - (low - {_TURNED} * few)) // {_TURNED})"},
    "fixed-added": (
        {_LINE: "((capacity + low) * (many - few) - few * (high - low)) // (high - low)"},
        {_LINE: f"int((capacity + low - {_SLOPE} * few) // {_SLOPE})"},
    ),
    "slope-of-one": (
        {_LINE: "int((capacity - low) / (high / many) + few)"},
        {_LINE: "int((capacity - high) / (low / few) + many)"},
    ),
    "less-than": {"capacity - low": "capacity - low - 1"},
    "one-more": {_LINE: f"{_LINE} + 1"},
    "not-below-small": {_LINE: f"{_LINE} if capacity > low else 0"},
    "one-less": {_LINE: f"{_LINE} - 1"},
    "not-zero": ({"max(0,": "max(1,"}, {"max(0,": "max(few,"}),
    "capped": {_LINE: f"min(many, {_LINE})"},
    "fraction": {"//": "/"},
    "whole-slope": {") * (many - few) // (high - low": ") // ((high - low) // (many - few)"},
    "negative": {f"max(0, {_LINE})": _LINE},
}


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
    check_answer=OverCases(
        batch_that_fits,
        _CASES,
        twins_of(batch_that_fits, _TWINS),
        draw=_draw,
        otherwise=lambda got, *_: "negative" if got < 0 else "wrong-batch",
        situation=lambda *case: "{} and {} in {:,} bytes".format(*case),
    ),
    why="Two cheap runs replace a search, and a rule of three does not: it also shrinks the weights and the "
    "optimizer's state, which do not shrink.",
    diagnoses={
        "no-fixed-part": "That is a line through zero. A batch of none would still need the model.",
        "rounded": "The batch is rounded to the nearest whole number. One that is rounded up does not fit.",
        "rounded-up": "A batch that is rounded up does not fit.",
        "on-top": "That is how many samples fit on top of the small batch, not how many fit in all.",
        "fraction": "A batch is a whole number.",
        "whole-slope": "The bytes a sample need not be a whole number: only the batch is rounded.",
        "negative": "No batch is less than nothing: where the fixed part alone is too much, the answer is 0.",
        "on-top-of-large": "That is how many samples fit on top of the large batch, not how many fit in all.",
        "bytes-first": "The pairs are taken the wrong way round. Each is (batch, peak bytes).",
        "upside-down": "The slope is upside down. It is bytes over samples.",
        "fixed-added": "The fixed part is added to the capacity. It takes its place away.",
        "slope-of-one": "The bytes a sample are taken from one measurement alone: its fixed part is in them.",
        "less-than": "A peak of exactly the capacity fits: it is to be at most that.",
        "one-more": "That is one sample too many.",
        "not-below-small": "A batch smaller than the small one can fit where the small one does not: the line goes on to the left.",
        "one-less": "That is one sample too few, wherever anything fits.",
        "not-zero": "Where no batch fits, the answer is 0, and any batch from 1 on can be the answer.",
        "capped": "The answer can lie beyond the large batch: the line goes on.",
        "wrong-batch": "That is not where the line meets the capacity.",
    },
)
