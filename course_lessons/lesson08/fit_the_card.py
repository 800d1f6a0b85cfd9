"""Batch, parts and format for a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from course_utils.exercises import Exercise, Judge


def fit_the_card(capacity, batch, formats):
    plans = []
    for name, (fixed, per_sample, per_part, seconds) in formats.items():
        for parts in range(1, batch + 1):
            rows = batch // parts
            if rows * parts == batch and fixed + per_sample * rows <= 0.9 * capacity:
                plans.append((parts * per_part + batch * seconds, name, rows, parts))
    return min(plans)[1:] if plans else None


Format = tuple[float, float, float, float]


@dataclass(frozen=True)
class _Card:
    """A card, the batch that a recipe asks for, and what each format needs on this card."""

    capacity: float
    batch: int
    formats: Mapping[str, Format]

    def used(self, name: str, rows: int) -> float:
        """Return the bytes of a step in parts of so many rows."""
        fixed, per_sample, _, _ = self.formats[name]
        return fixed + per_sample * rows

    def seconds(self, name: str, parts: int) -> float:
        """Return the time of a step in so many parts."""
        _, _, per_part, per_sample = self.formats[name]
        return parts * per_part + self.batch * per_sample

    def __str__(self) -> str:
        return f"{self.batch} samples a step on {self.capacity / 1e9:g} GB"


_NET: dict[str, Format] = {
    "float32": (400e6, 90e6, 0.020, 0.0040),
    "bfloat16": (450e6, 50e6, 0.022, 0.0016),
    "float16": (450e6, 50e6, 0.024, 0.0017),
}


_OLD: dict[str, Format] = {
    "bfloat16": (450e6, 50e6, 0.022, 0.0250),  # no units for it: emulated
    "float32": (400e6, 90e6, 0.020, 0.0100),
}


_DEEP: dict[str, Format] = {
    "fast": (200e6, 400e6, 0.050, 0.0010),
    "lean": (200e6, 40e6, 0.050, 0.0020),
}


_HEAVY: dict[str, Format] = {
    "float16": (1100e6, 5e6, 0.010, 0.0010),
    "float32": (850e6, 10e6, 0.010, 0.0030),
}


_CARDS = (
    _Card(80e9, 256, _NET),
    _Card(8e9, 192, _NET),
    _Card(2.6e9, 96, _NET),
    _Card(6e9, 128, _OLD),
    _Card(4e9, 64, _DEEP),
    _Card(1e9, 20, _HEAVY),
    _Card(0.8e9, 7, _NET),
    _Card(1000.0, 8, {"float32": (100.0, 100.0, 0.1, 0.1)}),
    _Card(0.4e9, 32, _NET),
)


def _check_fit_the_card(answer: Callable[..., Any], judge: Judge) -> None:
    for card in _CARDS:
        got = answer(card.capacity, card.batch, dict(card.formats))
        right = fit_the_card(card.capacity, card.batch, card.formats)
        seen = f"{got} for {card}"
        if got is None or right is None:
            if got is not right:
                why = "gives-up" if got is None else "impossible"
                judge.no(why, seen=seen, expected=str(right))
            continue
        plan = judge.is_a(got, (tuple, list), "a tuple: name, rows, parts")
        if len(plan) != 3 or plan[0] not in card.formats:
            judge.no("three-things", seen=seen, expected=str(right))
        name, rows, parts = plan
        rows, parts = judge.is_a(rows, int, "whole rows"), judge.is_a(parts, int, "whole parts")
        if rows * parts != card.batch:
            judge.no("other-batch", seen=f"{seen}: {rows * parts}", expected=f"{card.batch}")
        used = card.used(name, rows) / card.capacity
        if used > 0.9:
            judge.no(
                "does-not-fit" if used > 1 else "no-margin",
                seen=f"{seen}: {used:.0%} of the card",
                expected="at most 90%",
            )
        least, needs = card.seconds(right[0], right[2]), card.seconds(name, parts)
        if needs > least:
            judge.no(
                "more-parts" if name == right[0] else "other-format",
                seen=f"{seen}: {needs:.3g} s a step",
                expected=f"{least:.3g} s",
            )


EXERCISE = Exercise(
    id="08.fit_the_card",
    title="Batch, parts and format for a card",
    level=2,
    minutes=10,
    task="""
A recipe asks for `batch` samples an optimiser step. On a small card they come in parts of **equal** size, whose
gradients accumulate. Write `fit_the_card(capacity, batch, formats)`: the tuple `(format, rows of a part, number of
parts)` whose step takes the least time; None where nothing fits. `capacity` is the card's bytes, of which a tenth stays
free. `formats` maps names, such as `"bfloat16"`, to four figures that were measured on this card as in A3: the fixed
bytes, the bytes that each row of a part adds, the seconds that each part costs, however small, and the seconds of each
sample.
""",
    hints=(
        "Which sizes can a part have, if all are equal and together just the batch? They are few enough to try them all.",
        "For one format and one number of parts ask two things. Does it fit? And how long is a step: `parts` times the "
        "seconds of a part, and `batch` times the seconds of a sample?",
        "Collect tuples `(seconds, name, rows, parts)` of all that fits, over all formats and all divisors of `batch`. "
        "`min` goes by the first entry.",
    ),
    reference=fit_the_card,
    check_answer=_check_fit_the_card,
    why="The batch belongs to the recipe: with another one you would need another learning rate. The card decides only "
    "in how many parts it comes, and in which format. What counts is the time of a step, neither the largest part nor the "
    "fewest bytes: on a card without units for it, a 16-bit format can be the slow one.",
    diagnoses={
        "other-batch": "The parts do not add up to the batch of the recipe.",
        "does-not-fit": "This needs more than the card has. There is a fixed part, whatever the batch.",
        "no-margin": "This leaves less than a tenth of the card free.",
        "more-parts": "The format is right, and fewer parts of equal size would fit too. Each part costs its seconds.",
        "other-format": "In another format the step takes less time, its parts counted.",
        "gives-up": "There is a plan that fits.",
        "impossible": "Nothing fits here, not even parts of one row.",
        "three-things": "Return three things: the name of a format, the rows of a part, the number of parts.",
    },
)
