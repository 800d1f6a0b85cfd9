"""Known answers to 07.event_seconds."""

from __future__ import annotations

import time
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


def _events_around_all(work, device, repeats):
    def together():
        for _ in range(repeats + 1):
            work()

    return event_seconds(_later(together), device, 1) / repeats


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


def _events_by_perf_counter(work, device, repeats):
    wait = (lambda: None) if device.type == "cpu" else torch.accelerator.synchronize
    work()
    wait()
    begin = perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (perf_counter() - begin) / repeats


def _events_with_waits(work, device, repeats):
    work()
    return sum(event_seconds(_later(work), device, 1) for _ in range(repeats)) / repeats


def _events_one_by_one(work, device, repeats):
    work()
    if device.type == "cpu":
        times = []
        for _ in range(repeats):
            begin = time.perf_counter()
            work()
            times.append(time.perf_counter() - begin)
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


def _events_by_the_host_clock(work, device, repeats):
    def wait():
        if device.type != "cpu":
            torch.accelerator.synchronize(device)

    clock = host_clock(device)
    work()
    wait()
    begin = clock()
    for _ in range(repeats):
        work()
    wait()
    return (clock() - begin) / repeats


_MEAN = "start.elapsed_time(end) / 1000 / repeats"


WRONG = {
    "milliseconds": {_MEAN: _MEAN.replace(" / 1000", "")},
    "all-calls": _events_of_all,
    "no-warm-up": (_events_cold, _events_cold_on_the_cpu, _events_around_all),
    "only-launches": _events_of_launches,
    "waits-between": _events_with_waits,
    "wrong-value": (_events_by_perf_counter, {'device.type == "cpu"': "False"}),
}
RIGHT = {"one by one": _events_one_by_one, "by the host's clock": _events_by_the_host_clock}
