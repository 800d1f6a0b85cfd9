"""Known wrong answers to 09.learning_rate, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable

from course_lessons.lesson09.learning_rate import RATE_TWINS


def _rate_of(name: str) -> Callable[..., float]:
    twin = RATE_TWINS[name]

    def answer(step, steps, peak, warm):
        return twin(step, steps, peak, warm)

    return answer


WRONG = {
    name: _rate_of(name)
    for name in (
        "last-step-lost",
        "peak-twice",
        "stays-up",
        "no-warm-up",
        "cosine",
        "share",
    )
}
