"""Known wrong answers to 08.fit_the_card, by the diagnosis that each must get."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_lessons.lesson08.fit_the_card import Format


def _fit_with(
    share: float = 0.9,
    count_fixed: bool = True,
    sizes: Callable[[int], Sequence[int]] = lambda batch: [
        n for n in range(batch, 0, -1) if batch % n == 0
    ],
    by: Callable[[float, Format], float] = lambda seconds, format: seconds,
    otherwise: Callable[[Mapping[str, Format], int], Any] = lambda formats, batch: None,
) -> Callable[..., Any]:
    """A plan with one thing left out, or weighed otherwise."""

    def fit_the_card(capacity, batch, formats):
        found = []
        for name, format in formats.items():
            fixed, per_sample, per_part, seconds = format
            for rows in sizes(batch):
                if fixed * count_fixed + per_sample * rows <= share * capacity:
                    parts = math.ceil(batch / rows)
                    step = parts * per_part + batch * seconds
                    found.append((by(step, format), step, name, rows, parts))
        return min(found)[2:] if found else otherwise(formats, batch)

    return fit_the_card


def _halves(batch: int) -> list[int]:
    rows = [batch]
    while rows[-1] % 2 == 0:
        rows.append(rows[-1] // 2)
    return [*rows, 1]


WRONG = {
    "other-batch": _fit_with(sizes=lambda batch: range(batch, 0, -1)),
    "does-not-fit": _fit_with(count_fixed=False),
    "no-margin": _fit_with(share=1.0),
    "more-parts": _fit_with(sizes=_halves),
    "other-format": _fit_with(by=lambda seconds, format: format[3]),
    "gives-up": _fit_with(sizes=lambda batch: [batch]),
    "impossible": _fit_with(otherwise=lambda formats, batch: (min(formats), 1, batch)),
}
