"""Known answers to 09.time_to_target that its check's twins are not."""

import math
import statistics

import numpy as np
import torch

from course_lessons.lesson09.time_to_target import time_to_target


def _target_by_loops(runs, target):
    firsts = []
    for run in runs:
        first = math.inf
        for seconds, accuracy in run:
            if accuracy >= target:
                first = seconds
                break
        firsts.append(first)
    return statistics.median(firsts)


def _firsts(runs, target):
    return [next((s for s, a in run if a >= target), math.inf) for run in runs]


WRONG = {
    "survivors": {
        "times.append(min(reached, default=math.inf))": "times += reached and [min(reached)]"
    },
    "half-fail": lambda runs, target: min(1e6, time_to_target(runs, target)),
    "not-half": lambda runs, target: math.inf,
    "too-early": lambda runs, target: time_to_target(runs, target) - 0.5,
    "too-late": lambda runs, target: time_to_target(runs, target) + 0.5,
    "wrong-type": (lambda runs, target: "never", _firsts),
    "returned-nothing": lambda runs, target: statistics.median(_firsts(runs, target)) and None,
}
RIGHT = {
    "by loops": _target_by_loops,
    "by NumPy": lambda runs, target: np.median(np.array(_firsts(runs, target), dtype=np.float32)),
    "a tensor": lambda runs, target: torch.tensor(statistics.median(_firsts(runs, target))),
}
