"""The function that 08.event_seconds times."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter
from typing import Any

import torch

import simgpu
from course_utils.exercises import Judge


class UnevenWork:
    """A function whose calls take different times, the first the longest; it records the time of each call.

    So the answer's mean shows which calls it timed, and by what it divided.
    """

    SHARES = (12.0, 1.0, 1.9, 0.6, 1.3, 1.1, 1.7, 0.9, 1.2)

    def __init__(self, device: torch.device, seconds: float, repeats: int) -> None:
        self.device, self.seconds, self.repeats = device, seconds, repeats
        self.took: list[float] = []
        self.waits: list[int] = []  # how often the host had waited before each call

    def __call__(self) -> None:
        """Work for the next duration: on the simulated device with four kernels, else by busy-waiting."""
        number = len(self.took)
        duration = self.seconds * self.SHARES[number if number < 9 else number % 8 + 1]
        begin = perf_counter()
        if self.device.type == "sim":
            self.waits.append(self.counters.synchronizations)
            for _ in range(4):
                simgpu.clock(self.device).launch("work", duration / 4)
            self.took.append(duration)
            return
        while perf_counter() < begin + duration:
            pass
        self.took.append(perf_counter() - begin)

    def time(self, answer: Callable[..., Any], judge: Judge) -> UnevenWork:
        """Call ``answer(self, device, repeats)`` and store its result as ``got``; return self."""
        with simgpu.count() if self.device.type == "sim" else nullcontext() as counters:
            self.counters = counters
            self.got = judge.number(answer(self, self.device, self.repeats))
        return self

    @property
    def mean(self) -> float:
        """The mean seconds of the last ``repeats`` calls, which are those that should be timed."""
        return sum(self.took[-self.repeats :]) / self.repeats

    def is_near(self, seconds: float) -> bool:
        """Return whether the answer's result is near a number of seconds."""
        if self.device.type == "sim":  # exact: events can hold a wait for a launch, and no less
            return seconds * (1 - 1e-6) <= self.got <= seconds * 1.025
        return math.isclose(self.got, seconds, rel_tol=0.15)

    @property
    def is_right(self) -> bool:
        """Whether the answer warmed up, and its result is near the mean."""
        return len(self.took) > self.repeats and self.is_near(self.mean)
