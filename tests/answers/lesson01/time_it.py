"""Known answers to 01.time_it: wrong ones by the diagnosis that each must get, and right ones."""

from __future__ import annotations

import torch

from course_lessons.lesson01.time_it import time_it
from course_utils.exercises.edited import edited


def _time_block(launch, synchronize, clock, repeats):
    launch()
    synchronize()
    start = clock()
    for _ in range(repeats):
        launch()
    synchronize()
    return clock() - start


_MEDIAN = "statistics.median(times)"
_ONE_MORE = {"range(repeats)": "range(repeats + 1)"}
_COLD = {"launch()\ntimes = []": "times = []"}
WRONG = {
    "no-sync": edited(time_it, {"launch()\nsynchronize()": "launch()"}),
    "queue-not-empty": edited(time_it, {"synchronize()\nstart = clock()": "start = clock()"}),
    "warm-up-counted": (edited(time_it, _COLD), edited(time_it, {**_COLD, **_ONE_MORE})),
    "mean": edited(time_it, {_MEDIAN: "sum(times) / repeats"}),
    "minimum": edited(time_it, {"statistics.median": "min"}),
    "total": _time_block,
    "clock-late": edited(time_it, {"start = clock()\nlaunch()": "launch()\nstart = clock()"}),
    "one-start": edited(
        time_it,
        {
            "times = []": "synchronize()\nstart = clock()\ntimes = []",
            "synchronize()\nstart = clock()": "",
        },
    ),
    "last-dropped": edited(
        time_it, {**_COLD, **_ONE_MORE, _MEDIAN: "statistics.median(times[:-1])"}
    ),
    "too-few": (
        edited(time_it, {**_COLD, _MEDIAN: "statistics.median(times[1:])"}),
        edited(time_it, {**_COLD, _MEDIAN: "sum(times[1:]) / len(times[1:])"}),
        lambda launch, synchronize, clock, repeats: 2.52e-3,
    ),
}
RIGHT = {
    "careful": edited(
        time_it,
        {
            **_COLD,
            "range(repeats)": "range(repeats + 3)",
            "times.append": "synchronize()\ntimes.append",
            _MEDIAN: "statistics.median(times[3:])",
        },
    ),
    "upper median": edited(time_it, {_MEDIAN: "sorted(times)[repeats // 2]"}),
    "lower median": edited(time_it, {_MEDIAN: "torch.tensor(times).median()"}, torch=torch),
}
