"""Known answers to 10.gain."""

import numpy as np
import torch

from course_lessons.lesson10.gain import gain


def _gain_by_lists(old, new, rounds, clock):
    works = [old, new]
    for work in works:
        work()
    numbers = []
    for turn in range(rounds):
        seconds = {}
        for i in (0, 1) if turn % 2 == 0 else (1, 0):
            start = clock()
            works[i]()
            seconds[i] = clock() - start
        numbers.append(seconds[0] / seconds[1])
    return tuple(float(torch.tensor(numbers, dtype=torch.float64).quantile(q)) for q in (0.25, 0.5, 0.75))


_TIMED = {"old()\nnew()": "timed(old)\ntimed(new)"}
WRONG = {"wrong-value": ({', method="inclusive"': ""}, {"turn % 2 == 0": "turn % 2"})}
RIGHT = {
    "a timed warm-up": _TIMED,
    "in float32": lambda *case: np.array(gain(*case), dtype=np.float32),
    "by lists": _gain_by_lists,
    "as a list": lambda *case: list(gain(*case)),
    "as an array": lambda *case: np.array(gain(*case)),
}
