"""From here on it wins."""

import operator

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def crossover(rows):
    first = None
    for size, *_, speedup in sorted(rows, reverse=True):
        if speedup <= 1:
            break
        first = size
    return first


def _make_rows(speedups):
    """Return rows ``(size, cpu_seconds, device_seconds, speedup)`` for speed-ups by size."""
    return [(n, s * 1e-6 * n, 1e-6 * n, s) for n, s in speedups.items()]


_CASES = [
    (_make_rows(speedups),)
    for speedups in (
        {32: 0.2, 64: 0.7, 128: 3.0, 256: 9.0},
        {32: 0.2, 64: 1.1, 128: 0.9, 256: 4.0, 512: 5.0},  # 64 won once, by chance
        {128: 1.2, 512: 5.0, 32: 0.2, 64: 0.7, 256: 1.5},
        {16: 1.2, 32: 1.4},
        {32: 0.3, 64: 0.5},
        {16: 0.5, 32: 1.0, 64: 1.0, 128: 1.5, 256: 2.0},
    )
]


def _random_case(rng):
    """Return a random case, 2 to 5 rows in any order."""
    sizes = rng.sample((16, 32, 48, 64, 100, 128, 200, 256), rng.randint(2, 5))
    return (_make_rows({n: rng.choice((0.5, 0.9, 1.0, 1.1, 1.5, 3.0)) for n in sizes}),)


_MISTAKES = {
    "first-win": lambda rows: next((n for n, *_, s in sorted(rows) if s > 1), None),
    "unsorted": (
        {"sorted(rows, reverse=True)": "reversed(rows)"},
        {"sorted(rows, reverse=True)": "rows"},
    ),
    "upward": {", reverse=True": ""},
    "largest-ratio": lambda rows: max(rows, key=lambda row: row[3])[0],
    "last-loss": lambda rows: max((n for n, *_, s in rows if s <= 1), default=None),
}


EXERCISE = Exercise(
    id="09.crossover",
    title="From here on it wins",
    level=1,
    minutes=5,
    task="""
Write `crossover(rows)` for such a list of `(n, first, second, speed-up)`, in any order: the smallest n from
which on the second device is faster, at this size **and at every larger one**, or `None`. A speed-up of
exactly 1 is no win.
""",
    hints=(
        "One size can win by chance, and a larger one can still lose. At which end of the list should you "
        "start, so that you know all the larger sizes already?",
        "Begin at the largest size and go down for as long as the second device wins. The rows come in any "
        "order, so sort them first. Python sorts tuples by their first entry, and `reverse=True` puts the "
        "largest in front. Think about what you want to return if even the largest size doesn't win.",
        """Here you count how many days in a row a runner has run, up to today, which is day 4.

```python
days = [(3, True), (1, True), (4, True), (2, False)]
streak = 0
for day, ran in sorted(days, reverse=True):  # days 4, 3, 2, 1
    if not ran:
        break
    streak += 1
print(streak)  # 2
```""",
    ),
    reference=crossover,
    check_answer=ComparesToReference(
        crossover,
        _CASES,
        known_mistakes_of(crossover, _MISTAKES),
        draw=_random_case,
        read=lambda judge, got: got if got is None else judge.number(got),
        alike=operator.eq,
        situation=lambda rows: _("speed-ups {rows}").format(rows=", ".join(f"{n}: {s}" for n, *_, s in rows)),
        shown=lambda n: "None" if n is None else f"{n:g}",
    ),
    why="The first size that wins may have won by noise. Asking for all larger ones too costs nothing and "
    "makes the answer the same tomorrow.",
    diagnoses={
        "first-win": "That size wins, but a larger one loses again: it won by chance.",
        "unsorted": "The rows may come in any order. Sort them by size first.",
        "upward": "You went up from the smallest size, and stopped where it lost. Go down from the largest.",
        "largest-ratio": "That is the size with the best speed-up, not the first that wins for good.",
        "last-loss": "That is the last size that loses. The answer is the next one, if there is one.",
    },
)
