"""The line of the memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_utils.exercises import Exercise, Judge


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


def _check_memory_line(answer: Callable[..., Any], judge: Judge) -> None:
    for fixed, per_sample, batches in (
        (3000, 7, [64, 128, 250, 500]),
        (900_000, 3, [400, 101, 1600]),
        (6000, 50, [100, 10, 41]),
    ):
        meter = _Meter(fixed, per_sample)
        got = answer(meter.make_step, batches, meter)
        judge.is_a(got, (tuple, list), "a pair: fixed bytes, bytes a sample")
        if len(got) != 2:
            judge.no("pair", seen=got, expected="two numbers")
        a, b = (judge.number(value) for value in got)
        right = _line_of(memory_line, meter, batches)
        if not np.allclose((a, b), right, rtol=1e-6):
            _judge_line(a, b, right, meter, batches, judge)


def _line_of(way: Callable[..., Any], meter: _Meter, batches: Sequence[int]) -> tuple[float, float]:
    fresh = _Meter(meter.fixed, meter.per_sample)
    return way(fresh.make_step, batches, fresh)


def _judge_line(
    a: float,
    b: float,
    right: tuple[float, float],
    meter: _Meter,
    batches: Sequence[int],
    judge: Judge,
) -> None:
    like = [
        name
        for name, twin in LINE_TWINS.items()
        if np.allclose((a, b), _line_of(twin, meter, batches), rtol=1e-6, atol=1e-6)
    ]
    if not like and meter.crowded:
        like = ["keeps-all"]
    judge.no(
        like[0] if like else "wrong-line",
        seen=f"{a:,.1f} + {b:,.2f} bytes a sample, from batches {batches}",
        expected=f"{right[0]:,.1f} + {right[1]:,.2f}",
    )


def _line_with(
    *, warm: bool = True, reset: bool = True, read: str = "max_memory_allocated"
) -> Callable[..., Any]:
    """The measurement with one thing left out."""

    def memory_line(make_step, batches, meter):
        peaks = []
        for batch in batches:
            step = make_step(batch)
            if warm:
                step()
            if reset:
                meter.reset_peak_memory_stats()
            step()
            peaks.append(getattr(meter, read)())
        per_sample, fixed = np.polyfit(batches, peaks, 1)
        return fixed, per_sample

    return memory_line


def _line_through_zero(make_step, batches, meter):
    fixed, per_sample = memory_line(make_step, batches, meter)
    peaks = [fixed + per_sample * n for n in batches]
    return 0.0, np.dot(batches, peaks) / np.dot(batches, batches)


def _line_through_two(make_step, batches, meter):
    ends = [min(batches), max(batches)]
    return memory_line(make_step, ends, meter)


def _line_swapped(make_step, batches, meter):
    return memory_line(make_step, batches, meter)[::-1]


LINE_TWINS: dict[str, Callable[..., Any]] = {
    "no-warm-up": _line_with(warm=False),
    "not-the-peak": _line_with(read="memory_allocated"),
    "never-reset": _line_with(reset=False),
    "through-zero": _line_through_zero,
    "two-points": _line_through_two,
    "swapped": _line_swapped,
}


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
