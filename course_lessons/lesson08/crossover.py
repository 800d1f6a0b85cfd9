"""From here on it wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_utils.exercises import Exercise, Judge


def crossover(rows):
    first = None
    for size, *_, speedup in sorted(rows, reverse=True):
        if speedup <= 1:
            break
        first = size
    return first


def _rows(speedups: dict[int, float]) -> list[tuple[int, float, float, float]]:
    return [(n, s * 1e-6 * n, 1e-6 * n, s) for n, s in speedups.items()]


TWINS_CROSSOVER: dict[str, Callable[[Any], Any]] = {
    "first-win": lambda rows: next((row[0] for row in sorted(rows) if row[3] > 1), None),
    "unsorted": lambda rows: crossover_in_order(rows),
    "largest-ratio": lambda rows: max(rows, key=lambda row: row[3])[0],
    "a-tie-wins": lambda rows: _crossover_with(rows, lambda s: s >= 1),
    "last-loss": lambda rows: max((row[0] for row in rows if row[3] <= 1), default=None),
    "first-size": lambda rows: crossover(rows) or min(rows)[0],
}


def crossover_in_order(rows):
    first = None
    for row in reversed(rows):
        if row[3] <= 1:
            break
        first = row[0]
    return first


def _crossover_with(rows, wins):
    first = None
    for row in sorted(rows, reverse=True):
        if not wins(row[3]):
            break
        first = row[0]
    return first


def _check_crossover(answer: Callable[..., Any], judge: Judge) -> None:
    for speedups in (
        {32: 0.2, 64: 0.7, 128: 3.0, 256: 9.0},
        {32: 0.2, 64: 1.1, 128: 0.9, 256: 4.0, 512: 5.0},  # 64 won once, by chance
        {128: 1.2, 512: 5.0, 32: 0.2, 64: 0.7, 256: 1.5},
        {16: 1.2, 32: 1.4},
        {32: 0.3, 64: 0.5},
        {32: 2.0, 64: 0.5},
        {32: 0.5, 64: 1.0, 128: 2.0},
        {64: 0.5, 128: 6.0, 256: 2.0},
    ):
        rows = _rows(speedups)
        got, right = answer(rows), crossover(rows)
        if got is None and right is None:
            continue
        if got is None or right is None or judge.number(got) != right:
            like = [name for name, f in TWINS_CROSSOVER.items() if f(rows) == got]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{got} for speed-ups " + ", ".join(f"{n}: {s}" for n, s in speedups.items()),
                expected=str(right),
            )


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
    check_answer=_check_crossover,
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
