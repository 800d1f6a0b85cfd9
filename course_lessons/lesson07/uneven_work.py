"""The work that 07.event_seconds times."""

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
    """Work whose calls take unequally long, the first the longest; it knows how long they took.

    So the value tells which calls were timed, and by what they were divided.
    """

    SHARES = (12.0, 1.0, 1.9, 0.6, 1.3, 1.1, 1.7, 0.9, 1.2)

    def __init__(self, device: torch.device, seconds: float, repeats: int) -> None:
        self.device, self.seconds, self.repeats = device, seconds, repeats
        self.took: list[float] = []
        self.waits: list[int] = []  # how often the host had waited before each call

    def __call__(self) -> None:
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
        """Let an answer time it."""
        with simgpu.count() if self.device.type == "sim" else nullcontext() as counters:
            self.counters = counters
            self.got = judge.number(answer(self, self.device, self.repeats))
        return self

    @property
    def mean(self) -> float:
        """The seconds of the last calls, which should be those that are timed."""
        return sum(self.took[-self.repeats :]) / self.repeats

    def is_near(self, seconds: float) -> bool:
        if self.device.type == "sim":  # exact: events can hold a wait for a launch, and no less
            return seconds * (1 - 1e-6) <= self.got <= seconds * 1.025
        return math.isclose(self.got, seconds, rel_tol=0.15)

    @property
    def is_right(self) -> bool:
        return len(self.took) > self.repeats and self.is_near(self.mean)
