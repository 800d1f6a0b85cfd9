"""Known wrong answers to 01.time_it, by the diagnosis that each must get."""

from __future__ import annotations

import statistics

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


_times = edited(
    time_it,
    {
        (
            "def time_it(launch, synchronize, clock, repeats):\n    launch()"
        ): "def time_it(launch, synchronize, clock, repeats):",
        "statistics.median(times)": "times",
    },
)


def _time_last_dropped(launch, synchronize, clock, repeats):
    return statistics.median(_times(launch, synchronize, clock, repeats + 1)[:-1])


def _time_too_few(launch, synchronize, clock, repeats):
    return statistics.median(_times(launch, synchronize, clock, repeats)[1:])


WRONG = {
    "no-sync": edited(time_it, {("launch()\nsynchronize()"): "launch()"}),
    "queue-not-empty": edited(
        time_it, {("for _ in range(repeats):\n    synchronize()"): "for _ in range(repeats):"}
    ),
    "warm-up-counted": edited(
        time_it,
        {
            (
                "def time_it(launch, synchronize, clock, repeats):\n    launch()"
            ): "def time_it(launch, synchronize, clock, repeats):"
        },
    ),
    "mean": edited(time_it, {"statistics.median(times)": "sum(times) / repeats"}),
    "minimum": edited(time_it, {"statistics.median": "min"}),
    "total": _time_block,
    "clock-late": edited(
        time_it,
        {
            "start = clock()": ("launch()\nstart = clock()"),
            ("start = clock()\nlaunch()"): "start = clock()",
        },
    ),
    "one-start": edited(
        time_it,
        {
            "times = []": ("synchronize()\nstart = clock()\ntimes = []"),
            ("synchronize()\nstart = clock()"): "",
        },
    ),
    "last-dropped": _time_last_dropped,
    "too-few": _time_too_few,
}
