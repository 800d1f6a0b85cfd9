"""Known answers to 09.gain."""

import statistics

import numpy as np
import torch

from course_lessons.lesson09.gain import GAIN_TWINS, gain


def _gain_in_blocks(old, new, rounds, clock):
    old()
    new()
    times = []
    for work in (old, new):
        for _ in range(rounds):
            begin = clock()
            work()
            times.append(clock() - begin)
    ratios = [a / b for a, b in zip(times[:rounds], times[rounds:], strict=True)]
    return tuple(statistics.quantiles(ratios, n=4, method="inclusive"))


def _gain_calls_twice(old, new, rounds, clock):
    for _ in range(2):
        old(), new()
    return 1.0, 1.0, 1.0


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
    return tuple(
        float(torch.tensor(numbers, dtype=torch.float64).quantile(q)) for q in (0.25, 0.5, 0.75)
    )


_WARM = {"old()\nnew()": "new()\nold()"}
_TIMED = {"old()\nnew()": "timed(old)\ntimed(new)"}
WRONG = {
    **GAIN_TWINS,
    "no-warm-up": {"old()\nnew()": ""},
    "one-warm-up": {"old()\nnew()": "old()"},
    "other-warm-up": {"old()\nnew()": "old()\nnew()\nold()\nnew()"},
    "warm-up-order": _WARM,
    "in-blocks": _gain_in_blocks,
    "same-order": {"turn % 2 == 0": "True"},
    "other-order": (
        {"turn % 2 == 0": "turn % 2"},
        {"turn % 2 == 0": "turn < rounds / 2"},
        {"turn % 2 == 0": "turn // 2 % 2 == 0"},
    ),
    "more-calls": {"range(rounds)": "range(rounds + 1)"},
    "fewer-calls": {"range(rounds)": "range(rounds - 1)"},
    "other-clock": (_gain_calls_twice, {"begin = clock()": "begin = 0", "clock() - begin": "1"}),
    "not-three": {"n=4": "n=3"},
    "other-numbers": {"before / after": "(before / after) ** 2"},
    "wrong-type": (
        lambda old, new, rounds, clock: 1.0,
        lambda old, new, rounds, clock: np.ones(3)[0],
    ),
}
RIGHT = {
    "a timed warm-up": _TIMED,
    "in float32": lambda *case: np.array(gain(*case), dtype=np.float32),
    "by lists": _gain_by_lists,
    "as a list": lambda *case: list(gain(*case)),
    "as an array": lambda *case: np.array(gain(*case)),
}
