"""An honest timer."""

from __future__ import annotations

import statistics
from itertools import accumulate
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import near


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


def _check_time_it(answer: Any, judge: Judge) -> None:
    for jobs, first, queued, repeats in (
        ([2e-3, 3e-3, 2.5e-3, 40e-3, 2.2e-3], 0.3, 0.0, 5),
        ([4e-3, 5e-3], 0.6, 0.0, 1),
        ([3e-3, 4e-3], 0.05, 2.0, 1),
        ([7e-3, 6e-3, 6.5e-3, 7.5e-3, 90e-3], 0.1, 0.5, 4),
        ([1e-3, 1.4e-3, 1.1e-3, 9e-3, 1.2e-3, 1.3e-3, 8e-3], 0.02, 0.1, 7),
    ):
        device = _FakeDevice(jobs, first, queued)
        got = answer(device.launch, device.synchronize, device.clock, repeats)
        _judge_time(got, device, repeats, judge)


def _judge_time(got: Any, device: _FakeDevice, repeats: int, judge: Judge) -> None:
    if isinstance(got, (list, tuple)):
        judge.no("list", seen=got, expected="one number, the median")
    number = judge.number(got)
    launched = f"launches: {device.launches}, repeats: {repeats}"
    if device.launches < repeats:
        judge.no("too-few", seen=launched, expected=f"launches: {repeats + 1}")
    if device.clock_calls < 2:
        judge.no(
            "other-clock", seen=f"clock() calls: {device.clock_calls}", expected="two a launch"
        )
    if number < 0:
        judge.no("backwards", seen=_ms(number), expected="a time above 0")
    every, last = device.durations, device.durations[-repeats:]
    averages = (statistics.median, statistics.fmean)
    right = statistics.median(last)
    middle = (right, statistics.median_low(last), statistics.median_high(last))
    if near(number, 1000 * right):
        judge.no("milliseconds", seen=number, expected=f"{right:.4g} (seconds)")
    if number <= repeats * device.HOST + 1e-9:
        judge.no("no-sync", seen=_ms(number), expected=_ms(right))
    if near(number, right - device.HOST):
        judge.no("clock-late", seen=_ms(number), expected=_ms(right))
    if device.launches == repeats:
        cold_left_out = any(near(number, f(every[1:])) for f in averages if repeats > 1)
        diagnosis = "too-few" if cold_left_out else "warm-up-counted"
        judge.no(diagnosis, seen=launched, expected="one launch more, which does not count")
    if any(near(number, one) for one in middle):  # `torch.median`, for one, gives the lower
        return
    total = sum(last)
    for diagnosis, guilty in (
        (
            "warm-up-counted",
            any(near(number, f(every)) for f in averages),
        ),
        ("last-dropped", any(near(number, f(every[:repeats])) for f in averages)),
        ("one-start", near(number, statistics.median(accumulate(last)))),
        ("mean", near(number, total / repeats)),
        ("minimum", near(number, min(last))),
        ("total", repeats > 1 and abs(number - total) < 0.02 * total),
        ("queue-not-empty", number > max(last)),
    ):
        if guilty:
            judge.no(diagnosis, seen=_ms(number), expected=_ms(right))
    judge.no("other-time", seen=_ms(number), expected=_ms(right))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


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
    why="Warm up, wait, repeat, take the median: `measure()` does the same, so from here on you know "
    "what it does for you.",
    diagnoses={
        "no-sync": "The clock was read while the device was still working: this is the time to put "
        "work into the queue, not the time to do it. Wait after the launch as well.",
        "queue-not-empty": "Your time contains work that was in the queue before: the warm-up, or "
        "someone else's. The queue must be empty when the clock starts.",
        "clock-late": "The clock was read after the launch. Putting the work into the queue is part of its "
        "time: read the clock before the launch.",
        "one-start": "The clock was started once, before the loop, so each time contains those before "
        "it. Start it anew for each launch.",
        "last-dropped": "You left out the last time. The one that does not count is the first.",
        "warm-up-counted": "The first launch is in your result. It pays for things that happen once: "
        "launch once before you start to count.",
        "mean": "This is the mean, and one interrupted repetition has pulled it up. Which statistic "
        "does not move?",
        "minimum": "This is the best time, not the usual one.",
        "total": "This is the time of all repetitions together. Time each launch by itself.",
        "list": "Return one number, not all of them.",
        "other-clock": "Read the time with the `clock` that your function is given, before and after.",
        "backwards": "A time below 0: take the end minus the start.",
        "milliseconds": "The task asks for seconds.",
        "too-few": "There are too few launches: `repeats` of them count, and the warm-up comes on top.",
        "other-time": "This is not the median of the repetitions. Is every repetition timed by "
        "itself, and the warm-up left out?",
    },
)
