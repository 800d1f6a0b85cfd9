"""Known answers to 08.event_seconds."""

from __future__ import annotations

from time import perf_counter

import torch

import simgpu
from course_lessons.lesson08.event_seconds import event_seconds
from course_utils.timing import host_clock


def _events_of_all(work, device, repeats):
    """Return the seconds of all repeats together."""
    return repeats * event_seconds(work, device, repeats)


def _events_cold(work, device, repeats):
    """Measure without a warm-up call."""
    return event_seconds(_skipping_first_call(work), device, repeats)


def _events_cold_on_the_cpu(work, device, repeats):
    """Measure without a warm-up call, on the CPU only."""
    return event_seconds(_skipping_first_call(work) if device.type == "cpu" else work, device, repeats)


def _skipping_first_call(work):
    """Return a function that calls ``work``, except the first time."""
    calls = []

    def skipping():
        calls.append(1)
        if len(calls) > 1:
            work()

    return skipping


def _events_of_launches(work, device, repeats):
    """Measure how long the launches take, without waiting for the device."""
    work()
    torch.accelerator.synchronize()
    clock = simgpu.clock(device) if device.type == "sim" else None
    begin = clock.host if clock else perf_counter()
    for _ in range(repeats):
        work()
    return ((clock.host if clock else perf_counter()) - begin) / repeats


def _event_seconds_by_clock(clock_of):
    """Return an answer that reads the clock ``clock_of(device)``, and waits for the device before."""

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
    """Measure and wait in each repeat."""
    work()
    return sum(event_seconds(_skipping_first_call(work), device, 1) for _ in range(repeats)) / repeats


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
    "wrong-value": _event_seconds_by_clock(lambda device: perf_counter),
}
RIGHT = {"one by one": _events_one_by_one, "by the host's clock": _event_seconds_by_clock(host_clock)}
