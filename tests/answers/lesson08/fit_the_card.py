"""Known answers to 08.fit_the_card."""

from __future__ import annotations

from course_lessons.lesson08.fit_the_card import fit_the_card
from course_utils.exercises.edited import edited


def _by_divisors(capacity, batch, formats):
    found = {}
    for name, (fixed, per_sample, per_part, seconds) in formats.items():
        rows = batch
        while rows and (batch % rows or fixed + rows * per_sample > capacity * 9 / 10):
            rows -= 1
        if rows:
            found[name, rows, batch // rows] = batch // rows * per_part + batch * seconds
    return min(found, key=found.get, default=None)


WRONG = {
    "other-batch": edited(
        fit_the_card, {"batch // parts": "-(-batch // parts)", "rows * parts == batch and ": ""}
    ),
    "does-not-fit": edited(fit_the_card, {"fixed + ": ""}),
    "no-margin": edited(fit_the_card, {"0.9 * capacity": "capacity"}),
    "more-parts": edited(
        fit_the_card, {"range(1, batch + 1)": "(1, 2, 4, 8, 16, 32, 64, 128, 256, batch)"}
    ),
    "other-format": edited(
        fit_the_card, {"parts * per_part + batch * seconds": "(seconds, parts)"}
    ),
    "gives-up": edited(fit_the_card, {"range(1, batch + 1)": "[1]"}),
    "impossible": edited(fit_the_card, {"else None": "else (min(formats), 1, batch)"}),
    "three-things": lambda capacity, batch, formats: (min(formats), batch),
}
RIGHT = {"by divisors": _by_divisors}
