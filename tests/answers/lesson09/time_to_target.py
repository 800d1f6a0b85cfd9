"""Known answers to 09.time_to_target that its check's twins are not."""

from __future__ import annotations

import math
import statistics

from course_lessons.lesson09.time_to_target import time_to_target
from course_utils.exercises.edited import edited


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


WRONG = {
    "survivors": edited(
        time_to_target,
        {"times.append(min(reached, default=math.inf))": "times += reached and [min(reached)]"},
    ),
    "wrong-value": (
        edited(time_to_target, {"default=math.inf": "default=0"}),
        lambda runs, target: 3.0,
    ),
    "wrong-type": lambda runs, target: "never",
}
RIGHT = {"by loops": _target_by_loops}
