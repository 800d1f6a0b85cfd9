"""Known answers to 10.time_to_target that its check's known mistakes are not."""

import math
import statistics

import numpy as np
import torch


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


def _first_times(runs, target):
    """Return when each run first reaches the target, in seconds; infinity if never."""
    return [next((s for s, a in run if a >= target), math.inf) for run in runs]


WRONG = {"wrong-value": ({">=": ">"}, {"statistics.median(": "statistics.median_low("})}
RIGHT = {
    "by loops": _target_by_loops,
    "by NumPy": lambda runs, target: np.median(np.array(_first_times(runs, target), dtype=np.float32)),
    "a tensor": lambda runs, target: torch.tensor(statistics.median(_first_times(runs, target))),
}
