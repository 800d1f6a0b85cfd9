"""From here on it wins."""

from __future__ import annotations

import operator

from course_utils.exercises import Exercise
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def crossover(rows):
    first = None
    for size, *_, speedup in sorted(rows, reverse=True):
        if speedup <= 1:
            break
        first = size
    return first


def _rows(speedups: dict[int, float]) -> list[tuple[int, float, float, float]]:
    return [(n, s * 1e-6 * n, 1e-6 * n, s) for n, s in speedups.items()]


_CASES = [
    (_rows(speedups),)
    for speedups in (
        {32: 0.2, 64: 0.7, 128: 3.0, 256: 9.0},
        {32: 0.2, 64: 1.1, 128: 0.9, 256: 4.0, 512: 5.0},  # 64 won once, by chance
        {128: 1.2, 512: 5.0, 32: 0.2, 64: 0.7, 256: 1.5},
        {256: 4.0, 64: 2.0, 512: 5.0, 128: 0.9},
        {16: 1.2, 32: 1.4},
        {32: 0.3, 64: 0.5},
        {32: 2.0, 64: 0.5},
        {32: 0.5, 64: 1.0, 128: 2.0},
        {16: 0.5, 32: 1.0, 64: 1.0, 128: 1.5, 256: 2.0},
        {64: 0.5, 128: 6.0, 256: 2.0},
    )
]

_TWINS = {
    "first-win": lambda rows: next((n for n, *_, s in sorted(rows) if s > 1), None),
    "unsorted": edited(crossover, {"sorted(rows, reverse=True)": "reversed(rows)"}),
    "largest-ratio": lambda rows: max(rows, key=lambda row: row[3])[0],
    "a-tie-wins": edited(crossover, {"<= 1": "< 1"}),
    "last-loss": lambda rows: max((n for n, *_, s in rows if s <= 1), default=None),
    "first-size": edited(crossover, {"return first": "return first or min(rows)[0]"}),
}


def _situation(rows: list[tuple[int, float, float, float]]) -> str:
    return "speed-ups " + ", ".join(f"{n}: {speedup}" for n, *_, speedup in rows)


EXERCISE = Exercise(
    id="08.crossover",
    title="From here on it wins",
    level=1,
    minutes=5,
    task="""
Write `crossover(rows)` for such a list of `(n, first, second, speed-up)`, in any order: the smallest measured
n from which on the second device is faster, at this size **and at every larger one**. Return `None` where there
is none. Times are measured, so one small size may win by chance; a speed-up of exactly 1 is no win.
""",
    hints=(
        "Begin at the largest size and go down.",
        "Stop at the first size that does not win. What you saw just before it is the answer.",
    ),
    reference=crossover,
    check_answer=OverCases(
        crossover,
        _CASES,
        _TWINS,
        read=lambda judge, got: None if got is None else judge.number(got),
        alike=operator.eq,
        situation=_situation,
        shown=lambda n: "None" if n is None else f"{n:g}",
    ),
    why="The first size that wins may have won by noise. Asking for all larger ones too costs nothing and makes "
    "the answer the same tomorrow.",
    diagnoses={
        "first-win": "That size wins, but a larger one loses again: it won by chance.",
        "unsorted": "The rows may come in any order. Sort them by size first.",
        "largest-ratio": "That is the size with the best speed-up, not the first that wins for good.",
        "last-loss": "That is the last size that loses. The answer is the next one, if there is one.",
        "a-tie-wins": "A speed-up of 1 is no win.",
        "first-size": "Where the largest size does not win, there is no crossover: return None.",
        "wrong-value": "Another size is the first that wins for good.",
    },
)
