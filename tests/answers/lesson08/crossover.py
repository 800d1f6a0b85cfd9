"""Known answers to 08.crossover."""

from course_lessons.lesson08.crossover import crossover


def _from_below(rows):
    wins = [(n, ratio > 1) for n, _, _, ratio in sorted(rows)]
    return next((n for i, (n, _) in enumerate(wins) if all(w for _, w in wins[i:])), None)


WRONG = {
    "not-a-size": lambda rows: 1 + (crossover(rows) or 0),
    "is-none": lambda rows: None,
    "loses": lambda rows: min(n for n, *_ in rows),
    "changed-input": {"sorted(rows, reverse=True)": "(rows.sort() or rows)[::-1]"},
}
RIGHT = {"from below": _from_below}
