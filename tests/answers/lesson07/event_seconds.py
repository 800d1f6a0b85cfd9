"""Known answers to 07.event_seconds."""

from __future__ import annotations

from time import perf_counter

import torch

import simgpu
from course_lessons.lesson07.event_seconds import event_seconds
from course_utils.timing import host_clock


def _events_of_all(work, device, repeats):
    return repeats * event_seconds(work, device, repeats)


def _events_cold(work, device, repeats):
    return event_seconds(_later(work), device, repeats)


def _events_cold_on_the_cpu(work, device, repeats):
    return event_seconds(_later(work) if device.type == "cpu" else work, device, repeats)


def _later(work):
    """Skip the first call."""
    calls = []

    def skipping():
        calls.append(1)
        if len(calls) > 1:
            work()

    return skipping


def _events_of_launches(work, device, repeats):
    work()
    torch.accelerator.synchronize()
    clock = simgpu.clock(device) if device.type == "sim" else None
    begin = clock.host if clock else perf_counter()
    for _ in range(repeats):
        work()
    return ((clock.host if clock else perf_counter()) - begin) / repeats


def _events_by(clock_of):
    def event_seconds(work, device, repeats):
        clock = clock_of(device)
        wait = (lambda: None) if device.type == "cpu" else torch.accelerator.synchronize
        work()
        wait()
        begin = clock()
        for _ in range(repeats):
            work()
        wait()
        return (clock() - begin) / repeats

    return event_seconds


def _events_with_waits(work, device, repeats):
    work()
    return sum(event_seconds(_later(work), device, 1) for _ in range(repeats)) / repeats


def _events_one_by_one(work, device, repeats):
    work()
    if device.type == "cpu":
        times = []
        for _ in range(repeats):
            begin = perf_counter()
            work()
            times.append(perf_counter() - begin)
        return sum(times) / repeats
    module = torch.get_device_module(device)
    pairs = []
    for _ in range(repeats):
        pairs.append([module.Event(enable_timing=True) for _ in range(2)])
        pairs[-1][0].record()
        work()
        pairs[-1][1].record()
    module.synchronize(device)
    return sum(start.elapsed_time(end) for start, end in pairs) * 1e-3 / repeats


_MEAN = "start.elapsed_time(end) / 1000 / repeats"


WRONG = {
    "milliseconds": {_MEAN: _MEAN.replace(" / 1000", "")},
    "all-calls": _events_of_all,
    "no-warm-up": (_events_cold, _events_cold_on_the_cpu),
    "only-launches": _events_of_launches,
    "waits-between": _events_with_waits,
    "wrong-value": _events_by(lambda device: perf_counter),
}
RIGHT = {"one by one": _events_one_by_one, "by the host's clock": _events_by(host_clock)}
