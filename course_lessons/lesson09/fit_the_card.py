"""Batch, parts and format for a card."""

import operator

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def fit_the_card(capacity, batch, formats):
    plans = []
    for name, (fixed, per_sample, per_part, seconds) in formats.items():
        for parts in range(1, batch + 1):
            rows = batch // parts
            if rows * parts == batch and fixed + per_sample * rows <= 0.9 * capacity:
                plans.append((parts * per_part + batch * seconds, name, rows, parts))
    return min(plans)[1:] if plans else None


_NEW = {"float32": (400e6, 90e6, 0.020, 0.0040), "bfloat16": (450e6, 50e6, 0.022, 0.0016)}
_OLD = {"bfloat16": (450e6, 50e6, 0.022, 0.0250), "float32": (400e6, 90e6, 0.020, 0.0100)}
_CASES = (
    (80e9, 256, _NEW),
    (2.6e9, 96, _NEW),
    (6e9, 128, _OLD),  # a card without units for bfloat16
    (0.8e9, 7, _NEW),
    (1000.0, 8, {"float32": (100.0, 100.0, 0.1, 0.1)}),  # just nine tenths
    (80.0, 6, {"float32": (75.0, 10.0, 0.1, 0.1)}),
)


def _random_case(rng):
    """Return a random ``(capacity, batch, formats)``; in many of them only some plans fit."""
    batch = rng.choice((6, 12, 20, 30, 36, 60, 96))
    fixed, row = rng.randint(100, 900), rng.randint(5, 60)
    formats = {}
    for name in rng.sample(("float32", "bfloat16", "float16"), rng.randint(1, 3)):
        seconds = rng.randint(10, 300) / 1000, rng.randint(10, 99) / 10_000
        formats[name] = (fixed + rng.randint(-50, 50), row + rng.randint(0, 20), *seconds)
    return fixed + row * rng.uniform(0.5, 1.3 * batch) + 0.123, batch, formats


_PLANS = "parts * per_part + batch * seconds"
_FITS = "fixed + per_sample * rows <= 0.9 * capacity"
_MISTAKES = {
    "does-not-fit": {_FITS: "fixed <= 0.9 * capacity"},
    "other-format": {_PLANS: "(parts, parts * per_part + batch * seconds)"},
    "no-fixed": {"fixed + ": ""},
    "part-free": ({_PLANS: "batch * seconds"}, {_PLANS: "per_part + batch * seconds"}),
    "never-split": {"range(1, batch + 1)": "[1]"},
}


def _validated_result(judge, got):
    """Return ``(name, rows, parts)`` with Python ints where possible, or None, or refuse the result."""
    if got is None or len(judge.is_a(got, (tuple, list), _("a tuple, or None"))) != 3:
        return got
    name, *counts = got
    counts = [n if isinstance(n, str) else judge.number(n) for n in counts]
    return name, *(int(n) if not isinstance(n, str) and n == int(n) else n for n in counts)


def _describe_case(capacity, batch, formats):
    """Return the case in words."""
    figures = "; ".join(f"{name}: {', '.join(f'{n:g}' for n in f)}" for name, f in formats.items())
    return _("{batch} samples per step, {capacity:g} bytes ({figures})").format(
        batch=batch, capacity=capacity, figures=figures
    )


EXERCISE = Exercise(
    id="09.fit_the_card",
    title="Batch, parts and format for a card",
    level=2,
    minutes=10,
    task="""
A recipe asks for `batch` samples an optimiser step. On a small card they come in parts of **equal** size,
whose gradients accumulate. Write `fit_the_card(capacity, batch, formats)`: the tuple `(format, rows of a
part, number of parts)` whose step takes the least time, or None where nothing fits. A tenth of the card's
`capacity`, in bytes, stays free. `formats` maps names, such as `"bfloat16"`, to four figures measured on this
card as in A3: the fixed bytes, the bytes of each row of a part, the seconds of each part, however small, and
the seconds of each sample.
""",
    hints=(
        "All parts have the same size, and together they're exactly the batch. How many parts can there be? "
        "The answers are few enough to try each with each format.",
        "For one format and one number of parts, ask two questions. Does it fit? Only one part is on the "
        "card at a time, beside the fixed bytes. How long does a step take? Every part costs its seconds, "
        "and every sample of the batch costs its own. Keep all plans that fit, if there are any, and take "
        "the fastest.",
        """`min` compares tuples by their first entry. Here you look for the shortest fence around 24 square
metres that are at most 10 metres wide.

```python
fences = []
for width in range(1, 11):
    if 24 % width == 0:
        height = 24 // width
        fences.append((2 * (width + height), width, height))
print(min(fences))  # (20, 4, 6)
```""",
    ),
    reference=fit_the_card,
    check_answer=ComparesToReference(
        fit_the_card,
        _CASES,
        known_mistakes_of(fit_the_card, _MISTAKES),
        read=_validated_result,
        draw=_random_case,
        alike=operator.eq,
        situation=_describe_case,
        shown=str,
    ),
    why="The batch belongs to the recipe, and another one would need another learning rate, so the card "
    "decides only the parts and the format. What counts is the time of a step, and not the largest part or "
    "the fewest bytes, because a 16-bit format can be the slow one on a card without units for it.",
    diagnoses={
        "does-not-fit": "This needs more than the card has.",
        "no-fixed": "The fixed bytes are left out. They are there whatever the batch.",
        "part-free": "Each part costs its seconds: ten parts cost them ten times.",
        "never-split": "A batch that does not fit at once may come in parts: only the rows of one part are "
        "on the card at a time.",
        "other-format": "In another format the step takes less time, its parts counted.",
    },
)
