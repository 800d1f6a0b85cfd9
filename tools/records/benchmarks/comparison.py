"""Two things timed in turns, so that whatever else the machine does disturbs both alike."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import torch

from course_utils.devices import synchronize
from course_utils.timing import take_turns

Turn = Callable[[], float]
"""A turn of work; it returns the seconds that one sample took."""


@dataclass(frozen=True)
class Setting:
    """How long to measure.

    Attributes
    ----------
    rounds
        How often the two take turns, after one round that is not counted.
    scale
        By what to multiply the length of a turn. Under 1 nothing is worth keeping.
    """

    rounds: int = 5
    scale: float = 1.0


_setting = Setting()


def setting() -> Setting:
    """Return how long to measure."""
    return _setting


@contextlib.contextmanager
def measuring(**changes: float) -> Iterator[None]:
    """Measure longer or shorter within it: takes the fields of `Setting`."""
    global _setting
    before = _setting
    _setting = replace(before, **changes)
    try:
        yield
    finally:
        _setting = before


@dataclass(frozen=True)
class Comparison:
    """The seconds a sample took, round by round, in the reference and in the candidate."""

    reference: list[float]
    candidate: list[float]

    @property
    def ratios(self) -> list[float]:
        """How many times as fast the candidate was, round by round."""
        return [a / b for a, b in zip(self.reference, self.candidate, strict=True)]

    @property
    def rates(self) -> list[float]:
        """The candidate's samples a second, round by round."""
        return [1 / seconds for seconds in self.candidate]


def in_turns(reference: Turn, candidate: Turn) -> Comparison:
    """Let two things take turns, each first in every second round.

    Parameters
    ----------
    reference, candidate
        Each is called once more than there are rounds: its first turn is not counted.
    """
    for turn in (candidate, reference):  # a candidate that cannot run says so at once
        turn()
    return Comparison(*take_turns(reference, candidate, range(setting().rounds)))


class Ticker:
    """Called by a loop after each step: reads the clock after the first steps, and after the last.

    Parameters
    ----------
    device
        It is waited for before the clock is read.
    warm_up, steps
        How many steps are not counted, and how many then are.
    """

    def __init__(self, device: torch.device, warm_up: int, steps: int) -> None:
        self.device = device
        self.warm_up, self.total = warm_up, warm_up + steps
        self.done = 0
        self._read: list[float] = []

    def __call__(self) -> None:
        """Count a step."""
        self.done += 1
        if self.done == self.warm_up or self.done == self.total:
            synchronize(self.device)
            self._read.append(perf_counter())

    @property
    def seconds(self) -> float:
        """How long the counted steps took.

        Raises
        ------
        RuntimeError
            Where the loop made more or fewer steps than it was given.
        """
        if self.done != self.total:
            raise RuntimeError(f"the loop made {self.done} steps of {self.total}")
        begin, end = self._read
        return end - begin


def calibrated(step: Callable[[], object], device: torch.device, seconds: float = 0.5) -> Turn:
    """Return a turn of as many steps as fill a time; it returns the seconds of one step.

    Parameters
    ----------
    step
        One step of work, warmed up by a few calls here.
    device
        What to wait for.
    seconds
        About how long a turn takes, at a scale of 1.
    """

    def run(steps: int) -> float:
        synchronize(device)
        begin = perf_counter()
        for _ in range(steps):
            step()
        synchronize(device)
        return perf_counter() - begin

    wanted = seconds * setting().scale
    run(3)
    steps, took = 1, run(1)
    while took < wanted / 4:
        steps *= 2
        took = run(steps)
    steps = max(1, round(steps * wanted / took))
    return lambda: run(steps) / steps


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what a package prints, draws, logs and warns of away from the table."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
