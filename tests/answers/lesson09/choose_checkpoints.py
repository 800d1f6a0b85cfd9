"""Known answers to 09.choose_checkpoints."""

import itertools

import numpy as np

from course_lessons.lesson09.choose_checkpoints import peak_of


def _none_or_all(blocks, budget):
    """Choose no block, or all but the last."""
    choices = set(), set(range(len(blocks) - 1))
    return next((chosen for chosen in choices if peak_of(blocks, chosen) <= budget), None)


def _by_combinations(blocks, budget):
    best = None
    for count in range(len(blocks)):
        for chosen in itertools.combinations(range(len(blocks) - 1), count):
            peak = max(
                sum(e + (0 if j in chosen else i) for j, (e, i, _) in enumerate(blocks[:n]))
                + blocks[n][0]
                + blocks[n][1]
                for n in range(len(blocks))
            )
            seconds = sum(blocks[n][2] for n in chosen)
            if peak <= budget and (best is None or seconds < best[0]):
                best = seconds, list(chosen)
    return best and best[1]


WRONG = {
    "does-not-fit": lambda blocks, budget: set(),
    "too-dear": _none_or_all,
}
RIGHT = {
    "by combinations": _by_combinations,
    "as an array": lambda blocks, budget: (
        None if (best := _by_combinations(blocks, budget)) is None else np.array(best, dtype=int)
    ),
}
