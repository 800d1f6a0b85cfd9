"""An honest timer."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from random import Random

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
    queue is empty. The first job is slow, and so are some later ones.
    """

    HOST = 20e-6

    def __init__(self, jobs: list[float], first: float, queued: float) -> None:
        self.now = 5.0
        self.idle_at = self.now + queued
        self.jobs, self.first = jobs, first
        self.launches = 0

    def launch(self) -> None:
        """Queue one job."""
        self.now += self.HOST
        job = self.first if self.launches == 0 else self.jobs[self.launches % len(self.jobs)]
        self.launches += 1
        self.idle_at = max(self.now, self.idle_at) + job

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.now = max(self.now, self.idle_at)

    def clock(self) -> float:
        """Read the time, in seconds."""
        return self.now


Case = tuple[Callable[[], None], Callable[[], None], Callable[[], float], int]


def _case(jobs: list[float], first: float, queued: float, repeats: int) -> Case:
    device = _FakeDevice(jobs, first, queued)
    return device.launch, device.synchronize, device.clock, repeats


def _cases() -> list[Case]:
    return [
        _case([2e-3, 3e-3, 2.5e-3, 40e-3, 2.2e-3], 0.3, 0.0, 5),
        _case([4e-3, 5e-3], 0.6, 0.0, 1),
        _case([3e-3, 4e-3], 0.05, 2.0, 1),
        _case([7e-3, 6e-3, 6.5e-3, 7.5e-3, 90e-3], 0.1, 0.5, 4),
        _case([1e-3, 1.4e-3, 1.1e-3, 9e-3, 1.2e-3, 1.3e-3, 8e-3], 0.02, 0.1, 7),
    ]


def _draw(random: Random) -> Case:
    jobs = [random.uniform(1e-3, 5e-3) for _ in range(random.randrange(9, 13))]
    jobs[random.randrange(9)] = 0.04
    first, queued = random.uniform(0.05, 0.3), random.choice((0.0, 0.7))
    return _case(jobs, first, queued, random.randrange(2, 7))


_MEDIAN = "statistics.median(times)"
_START = "synchronize()\nstart = clock()"
_TWINS = twins_of(
    time_it,
    {
        "no-sync": {"launch()\nsynchronize()": "launch()"},
        "queue-not-empty": (
            {_START: "start = clock()"},
            {_START: "start = clock()\nsynchronize()"},
        ),
        "clock-late": {"start = clock()\nlaunch()": "launch()\nstart = clock()"},
        "warm-up-counted": {
            "launch()\ntimes = []": "times = []",
            "range(repeats)": "range(repeats + 1)",
        },
        "mean": {_MEDIAN: "sum(times) / len(times)"},
        "rounded": {_MEDIAN: f"round({_MEDIAN}, 3)"},
    },
)


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
    check_answer=OverCases(
        time_it,
        _cases,
        _TWINS,
        read=Judge.number,
        look=lambda seconds, launch, *_: (seconds, launch.__self__.launches),
        draw=_draw,
        situation=lambda launch, synchronize, clock, repeats: f"repeats={repeats}",
        shown=lambda seen: f"{seen[0] * 1e3:.4g} ms, {seen[1]} launches",
    ),
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
