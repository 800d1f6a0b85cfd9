"""Batch, parts and format for a card."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from random import Random
from typing import Any

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases


def fit_the_card(capacity, batch, formats):
    plans = []
    for name, (fixed, per_sample, per_part, seconds) in formats.items():
        for parts in range(1, batch + 1):
            rows = batch // parts
            if rows * parts == batch and fixed + per_sample * rows <= 0.9 * capacity:
                plans.append((parts * per_part + batch * seconds, name, rows, parts))
    return min(plans)[1:] if plans else None


Formats = Mapping[str, tuple[float, float, float, float]]
_NET: Formats = {
    "float32": (400e6, 90e6, 0.020, 0.0040),
    "bfloat16": (450e6, 50e6, 0.022, 0.0016),
}
_OLD: Formats = {
    "bfloat16": (450e6, 50e6, 0.022, 0.0250),  # no units for it: emulated
    "float32": (400e6, 90e6, 0.020, 0.0100),
}
_CASES: tuple[tuple[float, int, Formats], ...] = (
    (80e9, 256, _NET),
    (2.6e9, 96, _NET),
    (6e9, 128, _OLD),
    (0.8e9, 7, _NET),
    (1000.0, 8, {"float32": (100.0, 100.0, 0.1, 0.1)}),  # just nine tenths
    (2000.0, 12, {"float32": (600.0, 200.0, 0.1, 0.1)}),
    (0.4e9, 32, _NET),
    (80.0, 6, {"float32": (75.0, 10.0, 0.1, 0.1)}),
)


def _draw(random: Random) -> tuple[float, int, Formats]:
    batch = random.choice((6, 12, 20, 30, 36, 60, 96))
    fixed, row = random.randint(100, 900), random.randint(5, 60)
    formats = {}
    for name in random.sample(("float32", "bfloat16", "float16"), random.randint(1, 3)):
        seconds = random.randint(10, 300) / 1000, random.randint(10, 99) / 10_000
        more = random.randint(-50, 50)
        formats[name] = (fixed + more, row + random.randint(0, 20), *seconds)
    return fixed + row * random.uniform(0.5, 1.3 * batch) + 0.123, batch, formats


_PLANS = "parts * per_part + batch * seconds"
_BYTES = "fixed + per_sample * rows"
_RANGE = "range(1, batch + 1)"
_MISTAKES = {
    "no-margin": {"0.9 * capacity": "capacity"},
    "only-a-tenth": {"0.9 * capacity": "0.1 * capacity"},
    "just-full": {f"{_BYTES} <=": f"{_BYTES} <"},
    "no-fixed": {"fixed + ": ""},
    "fixed-for-each-row": {_BYTES: "(fixed + per_sample) * rows"},
    "swapped": (
        {"name, rows, parts)": "name, parts, rows)"},
        {"0.9 * capacity": "capacity", "name, rows, parts)": "name, parts, rows)"},
    ),
    "part-free": ({_PLANS: "batch * seconds"}, {_PLANS: "per_part + batch * seconds"}),
    "all-in-each-part": {_PLANS: "parts * (per_part + batch * seconds)"},
    "one-part-of-samples": (
        {_PLANS: "parts * per_part + rows * seconds"},
        {_PLANS: "parts * per_part + rows * seconds, parts", "[1:]": "[2:]"},
    ),
    "most-parts": {_PLANS: "per_part + rows * seconds"},
    "seconds-swapped": {"per_part, seconds)": "seconds, per_part)"},
    "slowest": {"min(plans)": "max(plans)"},
    "fewest-parts": {"plans.append((": "plans.append((parts, ", "[1:]": "[2:]"},
    "powers-of-two": {_RANGE: "[2**k for k in range(batch.bit_length())]"},
    "never-whole": {_RANGE: "range(2, batch + 1)"},
    "no-single-rows": {_RANGE: "range(1, batch)"},
    "never-split": ({_RANGE: "[1]"}, {_BYTES: "fixed + per_sample * batch"}),
    "first-format": {
        "plans.append((": "plans.append((list(formats).index(name), ",
        "[1:]": "[2:]",
    },
    "other-batch": {
        "rows = batch // parts": "rows = -(-batch // parts)",
        "rows * parts == batch and ": "",
    },
}
TWINS = twins_of(fit_the_card, _MISTAKES)


def _read(judge: Judge, got: Any) -> Any:
    if got is None or len(judge.is_a(got, (tuple, list), "a tuple, or None")) != 3:
        return got
    name, *counts = got
    counts = [count if isinstance(count, str) else judge.number(count) for count in counts]
    return name, *(int(n) if not isinstance(n, str) and n == int(n) else n for n in counts)


def _why(got: Any, right: Any, capacity: float, batch: int, formats: Formats) -> str:
    """Return what is wrong with a plan that follows no known mistake."""
    if got is None or right is None:
        return "gives-up" if got is None else "impossible"
    if len(got) != 3 or got[0] not in formats or str in map(type, got[1:]):
        return "three-things"
    name, rows, parts = got
    if rows * parts != batch:
        return "other-batch"
    used = formats[name][0] + formats[name][1] * rows
    if used > 0.9 * capacity:
        return "does-not-fit" if used > capacity else "no-margin"
    return "more-parts" if name == right[0] else "other-format"


def _situation(capacity: float, batch: int, formats: Formats) -> str:
    figures = "; ".join(f"{name}: {', '.join(f'{n:g}' for n in f)}" for name, f in formats.items())
    return f"{batch} samples a step, {capacity:g} bytes ({figures})"


PLANS = OverCases(
    fit_the_card,
    _CASES,
    TWINS,
    read=_read,
    draw=_draw,
    alike=operator.eq,
    otherwise=_why,
    situation=_situation,
    shown=str,
)


EXERCISE = Exercise(
    id="08.fit_the_card",
    title="Batch, parts and format for a card",
    level=2,
    minutes=10,
    task="""
A recipe asks for `batch` samples an optimiser step. On a small card they come in parts of **equal** size, whose
gradients accumulate. Write `fit_the_card(capacity, batch, formats)`: the tuple
`(format, rows of a part, number of parts)` whose step takes the least time, or None where nothing fits. A tenth of the card's `capacity`, in bytes, stays
free. `formats` maps names, such as `"bfloat16"`, to four figures measured on this card as in A3: the fixed bytes, the
bytes of each row of a part, the seconds of each part, however small, and the seconds of each sample.
""",
    hints=(
        "Which sizes can a part have, if all are equal and together just the batch? They are few enough to try them all.",
        "For one format and one number of parts ask two things. Does it fit? And how long is a step: `parts` times the "
        "seconds of a part, and `batch` times the seconds of a sample?",
        "Collect tuples `(seconds, name, rows, parts)` of all that fits, over all formats and all divisors of `batch`. "
        "`min` goes by the first entry.",
    ),
    reference=fit_the_card,
    check_answer=PLANS,
    why="The batch belongs to the recipe: another one would need another learning rate. The card decides only the "
    "parts and the format. What counts is the time of a step, neither the largest part nor the fewest bytes: on a card "
    "without units for it, a 16-bit format can be the slow one.",
    diagnoses={
        "other-batch": "The parts do not add up to the batch of the recipe.",
        "does-not-fit": "This needs more than the card has.",
        "no-fixed": "The fixed bytes are left out. They are there whatever the batch.",
        "no-margin": "This leaves less than a tenth of the card free.",
        "only-a-tenth": "A tenth stays free. Nine tenths may be used, not one.",
        "just-full": "A plan that leaves just a tenth free may be used.",
        "fixed-for-each-row": "The fixed bytes are there once, not for each row.",
        "swapped": "The rows of a part come before the number of parts.",
        "part-free": "Each part costs its seconds: ten parts cost them ten times.",
        "all-in-each-part": "The seconds of the whole batch were counted for each part.",
        "one-part-of-samples": "The seconds of one part's samples were counted. A step has those of the whole batch.",
        "most-parts": "This is the plan with the most parts. Each costs its seconds, and all samples count.",
        "seconds-swapped": "The third figure is for each part, and the fourth for each sample.",
        "slowest": "This is the plan with the most time. The least is asked for.",
        "fewest-parts": "Fewest parts were taken first, over all formats. What counts is the time of a step.",
        "powers-of-two": "Any number that divides the batch can be a number of parts, not only 1, 2, 4, 8, …",
        "never-whole": "The batch may also come in one part.",
        "no-single-rows": "Parts of one row are possible, too.",
        "never-split": "A batch that does not fit at once may come in parts: only the rows of one part are on the card at a time.",
        "first-format": "The first format was taken that fits. Another one can be faster.",
        "more-parts": "The format is right, and fewer parts of equal size would fit too. Each part costs its seconds.",
        "other-format": "In another format the step takes less time, its parts counted.",
        "gives-up": "There is a plan that fits.",
        "impossible": "Nothing fits here, not even parts of one row: return None.",
        "three-things": "Return three things: the name of a format, the rows of a part, the number of parts.",
    },
)
