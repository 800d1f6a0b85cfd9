"""An honest timer."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from random import Random
from typing import Any

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases


def time_it(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


class _FakeDevice:
    """An asynchronous device with a clock of its own: nothing is really computed, time is counted.

    ``launch`` puts one job into the queue and costs the host a little; ``synchronize`` waits until the
    queue is empty. The first job is slow, as a first job is; some later ones are too.
    """

    HOST = 20e-6

    def __init__(self, jobs: list[float], first: float, queued: float) -> None:
        self.now = 5.0
        self.idle_at = self.now + queued
        self.jobs, self.first = jobs, first
        self.durations: list[float] = []
        self.launches = 0
        self.clock_calls = 0

    def launch(self) -> None:
        """Queue one job."""
        self.now += self.HOST
        job = self.first if self.launches == 0 else self.jobs[self.launches % len(self.jobs)]
        self.launches += 1
        self.idle_at = max(self.now, self.idle_at) + job
        self.durations.append(self.HOST + job)

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.now = max(self.now, self.idle_at)

    def clock(self) -> float:
        """Read the time, in seconds."""
        self.clock_calls += 1
        return self.now


_CASES = (
    ([2e-3, 3e-3, 2.5e-3, 40e-3, 2.2e-3], 0.3, 0.0, 5),
    ([4e-3, 5e-3], 0.6, 0.0, 1),
    ([3e-3, 4e-3], 0.05, 2.0, 1),
    ([7e-3, 6e-3, 6.5e-3, 7.5e-3, 90e-3], 0.1, 0.5, 4),
    ([1e-3, 1.4e-3, 1.1e-3, 9e-3, 1.2e-3, 1.3e-3, 8e-3], 0.02, 0.1, 7),
)


def _draw(random: Random) -> tuple[list[float], float, float, int]:
    jobs = [random.uniform(1e-3, 5e-3) for _ in range(random.randrange(9, 13))]
    jobs[random.randrange(9)] = 0.04
    return jobs, random.uniform(0.05, 0.3), random.choice((0.0, 0.7)), random.randrange(2, 7)


def _on_device(time_it: Callable[..., Any], judge: Judge | None = None) -> Callable[..., Any]:
    """Return what runs a function on a device; a judge looks at what was called."""

    def run(jobs: list[float], first: float, queued: float, repeats: int) -> Any:
        device = _FakeDevice(jobs, first, queued)
        got = time_it(device.launch, device.synchronize, device.clock, repeats)
        if judge is not None:
            if isinstance(got, (list, tuple)):
                judge.no(seen=got, expected="one number, the median")
            got = judge.number(got)
            launched = f"{device.launches} launches for repeats={repeats}"
            if device.launches != repeats + 1:
                few = "too-few" if device.launches <= repeats else "too-many"
                judge.no(few, seen=launched, expected=f"{repeats + 1} launches")
            if not device.clock_calls:
                judge.no(seen="clock() was never called", expected="two times a launch")
            if got < 0:
                judge.no(seen=_ms(got), expected="a time above 0")
        return got

    return run


_MEDIAN = "statistics.median(times)"
_START = "synchronize()\nstart = clock()"
_MISTAKES = {
    "no-sync": {"launch()\nsynchronize()": "launch()"},
    "queue-not-empty": ({_START: "start = clock()"}, {_START: "start = clock()\nsynchronize()"}),
    "clock-late": {"start = clock()\nlaunch()": "launch()\nstart = clock()"},
    "warm-up-counted": {
        "launch()\ntimes = []": "times = []",
        "range(repeats)": "range(repeats + 1)",
    },
    "mean": {_MEDIAN: "sum(times) / len(times)"},
    "rounded": {_MEDIAN: f"round({_MEDIAN}, 3)"},
}
TIME_TWINS = twins_of(time_it, _MISTAKES)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


_OVER_DEVICES = OverCases(
    _on_device(time_it),
    _CASES,
    {
        name: tuple(map(_on_device, twins)) if isinstance(twins, tuple) else _on_device(twins)
        for name, twins in TIME_TWINS.items()
    },
    draw=_draw,
    read=lambda judge, got: got,
    situation=lambda jobs, first, queued, repeats: f"repeats={repeats}",
    shown=_ms,
)


def _check_time_it(answer: Callable[..., Any], judge: Judge) -> None:
    _OVER_DEVICES(_on_device(answer, judge), judge)


EXERCISE = Exercise(
    id="01.time_it",
    title="An honest timer",
    task="`launch()` puts one piece of work into a device's queue and returns at once. "
    "`synchronize()` waits until the queue is empty. `clock()` reads the time in seconds. Return the "
    "**median** time of `repeats` launches, each timed by itself, after one launch that does not "
    "count. The queue may already hold someone else's work when your function is called. "
    "(`statistics` is imported.)",
    level=2,
    minutes=12,
    hints=(
        "At which two moments must the queue be empty, if the clock is to show one launch and "
        "nothing else?",
        "Wait before you read the clock: both times. The warm-up, too, is work in the queue.",
        "Warm up once. Then `repeats` times: wait, read the clock, launch, wait, read the clock. Keep "
        "each difference, and return `statistics.median` of them.",
    ),
    reference=time_it,
    check_answer=_check_time_it,
    why="Warm up, wait, repeat, take the median: `measure()` does that for you. It differs from your timer in one "
    "thing. Short work it times in blocks of several calls, and it waits only at the end of a block. So Python "
    "launches one call while the device works on the one before, and a call looks cheaper. Your timer finds the "
    "latency of one call, and a block the throughput of many.",
    diagnoses={
        "no-sync": "The clock was read while the device was still working: this is the time to put "
        "work into the queue, not the time to do it. Wait after the launch as well.",
        "queue-not-empty": "Your time contains work that was in the queue before. The queue must be empty when the "
        "clock starts.",
        "clock-late": "The clock was read after the launch. Putting the work into the queue is part of its "
        "time: read the clock before the launch.",
        "warm-up-counted": "The first launch is in your result. It pays for things that happen once: it must not count.",
        "mean": "This is the mean, and one interrupted repetition has pulled it up. Which statistic "
        "does not move?",
    },
)
