"""The line of the memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def memory_line(make_step, batches, meter):
    peaks = []
    for batch in batches:
        step = make_step(batch)
        step()
        meter.reset_peak_memory_stats()
        step()
        peaks.append(meter.max_memory_allocated())
    per_sample, fixed = np.polyfit(batches, peaks, 1)
    return fixed, per_sample


class _Meter:
    """A device's memory: what is allocated now, and the most since the last reset. It rounds up, as an allocator does."""

    grain = 128

    def __init__(self, fixed: int, per_sample: int) -> None:
        self.fixed, self.per_sample = fixed, per_sample
        self.now = self.top = self.alive = 0
        self.crowded = False

    def take(self, size: int) -> None:
        """Allocate; a negative size frees."""
        self.now += size
        self.top = max(self.top, self.now)

    def free(self, held: list[int]) -> None:
        """Free what a step that is gone had."""
        self.alive -= 1
        self.now -= sum(held)

    def memory_allocated(self, *_: Any) -> int:
        """Return what is allocated now."""
        return self.now

    def max_memory_allocated(self, *_: Any) -> int:
        """Return the most since the last reset."""
        return self.top

    def reset_peak_memory_stats(self, *_: Any) -> None:
        """Begin a new peak at what is allocated now."""
        self.top = self.now

    def make_step(self, batch: int) -> Callable[[], None]:
        """Return a training step: a third of the fixed part now, the rest with its first call."""
        return _Step(self, batch)


class _Step:
    """A step whose memory goes when it does."""

    def __init__(self, meter: _Meter, batch: int) -> None:
        self.meter, self.batch, self.calls, self.held = meter, batch, 0, [meter.fixed // 3]
        meter.take(self.held[0])
        meter.alive += 1
        weakref.finalize(self, meter.free, self.held)

    def __call__(self) -> None:
        self.calls += 1
        self.meter.crowded |= self.meter.alive > 1
        work = -(-self.meter.per_sample * self.batch // self.meter.grain) * self.meter.grain
        self.meter.take(work)
        self.meter.take(-work)
        if self.calls == 1:  # the optimiser makes its state
            self.held.append(self.meter.fixed - self.held[0])
            self.meter.take(self.held[1])


def _cases() -> Iterator[tuple[Any, ...]]:
    for fixed, per_sample, batches in (
        (3000, 7, [64, 128, 250, 500]),
        (900_000, 3, [400, 101, 1600]),
        (6000, 50, [100, 10, 41]),
    ):
        meter = _Meter(fixed, per_sample)
        yield meter.make_step, batches, meter


_FIT = "per_sample, fixed = np.polyfit(batches, peaks, 1)"
_TWINS = {
    "no-warm-up": edited(memory_line, {"make_step(batch)\nstep()": "make_step(batch)"}),
    "not-the-peak": edited(memory_line, {"max_memory_allocated": "memory_allocated"}),
    "never-reset": edited(memory_line, {"meter.reset_peak_memory_stats()": ""}),
    "through-zero": edited(
        memory_line,
        {_FIT: "fixed, per_sample = 0.0, np.dot(batches, peaks) / np.dot(batches, batches)"},
    ),
    "two-points": edited(
        memory_line, {"peaks = []": "peaks, batches = [], [min(batches), max(batches)]"}
    ),
    "swapped": edited(memory_line, {"return fixed, per_sample": "return per_sample, fixed"}),
}


def _read(judge: Judge, got: tuple[Any, bool]) -> tuple[float, float, bool]:
    line, crowded = got
    judge.is_a(line, (tuple, list), "a pair: fixed bytes, bytes a sample")
    if len(line) != 2:
        judge.no("pair", seen=line, expected="two numbers")
    return judge.number(line[0]), judge.number(line[1]), crowded


LINES = OverCases(
    memory_line,
    _cases,
    _TWINS,
    read=_read,
    alike=lambda got, right: np.allclose(got[:2], right[:2], rtol=1e-6, atol=1e-6),
    otherwise=lambda got, *_: "keeps-all" if got[2] else "wrong-line",
    situation=lambda make_step, batches, meter: f"batches {batches}",
    shown=lambda line: f"{line[0]:,.1f} + {line[1]:,.2f} bytes a sample",
)


def _check_memory_line(answer: Callable[..., Any], judge: Judge) -> None:
    def metered(make_step: Any, batches: Any, meter: _Meter) -> tuple[Any, bool]:
        return answer(make_step, batches, meter), meter.crowded

    LINES(metered, judge)


EXERCISE = Exercise(
    id="08.memory_line",
    title="The line of the memory",
    level=2,
    minutes=10,
    task="""
Write `memory_line(make_step, batches, meter)`: the pair (fixed bytes, bytes a sample) of the straight line
through the peaks of a training step. `make_step(batch)` builds a network, its optimiser and a batch of that size,
and returns `step()`, which trains for one step. The optimiser makes its state in the **first** step, as Adam does.
`meter` is a module such as `torch.cuda`: `reset_peak_memory_stats()`, `max_memory_allocated()`,
`memory_allocated()`. Fit the line to all points: `np.polyfit(x, y, 1)` returns slope and intercept.
""",
    hints=(
        "The step that you meter should be like all that follow it. Is the first one?",
        "A peak is the most since the last reset, so each batch needs its own reset. And a step that is still in a "
        "list still holds its network.",
        "For each batch: make the step, call it once, reset, call it again, note `max_memory_allocated()`. Then fit.",
    ),
    reference=memory_line,
    check_answer=_check_memory_line,
    why="With the first step's peak, your program would fit the card and stop in the second step. That is why an "
    "out-of-memory error so often comes in step 2.",
    diagnoses={
        "no-warm-up": "The first step was metered: the optimiser's state was not there yet, so the fixed part is "
        "too small.",
        "not-the-peak": "`memory_allocated()` says what is there after the step. The activations have gone by then.",
        "never-reset": "Without a reset a large batch's peak hides those of all smaller ones after it.",
        "through-zero": "The line was drawn through zero. A network takes memory before it has seen a sample.",
        "keeps-all": "Several steps were alive at once, each with its network and its batch. Let one go "
        "before the next is metered.",
        "two-points": "The line goes through two of the points. Each peak is rounded up a little by the allocator, so fit "
        "the line to all of them.",
        "swapped": "The pair is swapped. `np.polyfit` returns the slope first.",
        "pair": "Return a pair: fixed bytes, bytes a sample.",
        "wrong-line": "That is not the line through the peaks.",
    },
)
