"""Known wrong answers to 01.time_it, by the diagnosis that each must get."""

from __future__ import annotations

import statistics


def _time_sync_before(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        times.append(clock() - start)
    return statistics.median(times)


def _time_cold(launch, synchronize, clock, repeats):
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _time_mean(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return sum(times) / repeats


def _time_minimum(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return min(times)


def _time_unsettled(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _time_block(launch, synchronize, clock, repeats):
    launch()
    synchronize()
    start = clock()
    for _ in range(repeats):
        launch()
    synchronize()
    return clock() - start


def _time_clock_late(launch, synchronize, clock, repeats):
    launch()
    times = []
    for _ in range(repeats):
        synchronize()
        launch()
        start = clock()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _time_one_start(launch, synchronize, clock, repeats):
    launch()
    synchronize()
    start = clock()
    times = []
    for _ in range(repeats):
        launch()
        synchronize()
        times.append(clock() - start)
    return statistics.median(times)


def _times(launch, synchronize, clock, repeats):
    times = []
    for _ in range(repeats):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return times


def _time_last_dropped(launch, synchronize, clock, repeats):
    return statistics.median(_times(launch, synchronize, clock, repeats + 1)[:-1])


def _time_too_few(launch, synchronize, clock, repeats):
    return statistics.median(_times(launch, synchronize, clock, repeats)[1:])


WRONG = {
    "no-sync": _time_sync_before,
    "queue-not-empty": _time_unsettled,
    "warm-up-counted": _time_cold,
    "mean": _time_mean,
    "minimum": _time_minimum,
    "total": _time_block,
    "clock-late": _time_clock_late,
    "one-start": _time_one_start,
    "last-dropped": _time_last_dropped,
    "too-few": _time_too_few,
}
