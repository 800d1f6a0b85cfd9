"""Known answers to 01.time_it: right ones by a name."""

import numpy as np
import torch

from course_lessons.lesson01.time_it import time_it
from course_lessons.shared.edited import edited

_MEDIAN = "statistics.median(times)"
_ONE_MORE = {"range(repeats)": "range(repeats + 1)"}
_COLD = {"launch()\ntimes = []": "times = []"}


def _chained(launch, synchronize, clock, repeats):
    launch()
    synchronize()
    marks = [clock()]
    for _ in range(repeats):
        launch()
        synchronize()
        marks.append(clock())
    return np.median(np.diff(marks))


RIGHT = {
    "chained": _chained,
    "careful": {
        **_COLD,
        **_ONE_MORE,
        "times.append": "synchronize()\ntimes.append",
        _MEDIAN: "statistics.median(times[1:])",
    },
    "by torch": edited(
        time_it, {_MEDIAN: "torch.tensor(times, dtype=torch.float64).quantile(0.5)"}, torch=torch
    ),
}
