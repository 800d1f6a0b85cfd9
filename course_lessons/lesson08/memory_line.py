"""The line of the memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

import numpy as np

from course_lessons.shared.checking import quick_collection
from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
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


def _case(fixed: int, per_sample: int, batches: list[int]) -> tuple[Any, ...]:
    meter = _Meter(fixed, per_sample)
    return meter.make_step, batches, meter


def _cases() -> list[tuple[Any, ...]]:
    return [
        _case(3000, 7, [64, 128, 250, 500]),
        _case(900_000, 3, [400, 101, 1600]),
        _case(6000, 50, [100, 10, 41]),
    ]


def _draw(random: Random) -> tuple[Any, ...]:
    batches = random.sample(range(8, 400), random.randint(3, 5))
    return _case(random.randint(1000, 90_000), random.randint(5, 90), batches)


_FIT = "per_sample, fixed = np.polyfit(batches, peaks, 1)"
_RESET = "meter.reset_peak_memory_stats()"
_PEAK = "peaks.append(meter.max_memory_allocated())"
_FIRST = "step = make_step(batch)\nstep()\n"


def _let_go(edits: Mapping[str, str]) -> tuple[Callable[..., Any], ...]:
    """Return two twins: the second one lets each step go before it makes the next."""
    last = edits.get(_PEAK, _PEAK)
    return edited(memory_line, edits), edited(memory_line, {**edits, _PEAK: f"{last}\ndel step"})


_FITTED = {
    name: edited(memory_line, {_FIT: line})
    for name, line in {
        "through-zero": "fixed, per_sample = 0.0, np.dot(batches, peaks) / np.dot(batches, batches)",
    }.items()
}
_TWINS = {
    "no-warm-up": (
        *_let_go({"make_step(batch)\nstep()": "make_step(batch)"}),
        *_let_go({_FIRST + _RESET: f"{_RESET}\nstep = make_step(batch)"}),
        {f"{_RESET}\nstep()": f"{_RESET}\nmake_step(batch)()"},
        {
            "make_step(batch)\nstep()": "make_step(batch)",
            "return fixed, per_sample": "return per_sample, fixed",
        },
    ),
    "not-the-peak": _let_go({_PEAK: "peaks.append(meter.memory_allocated())"}),
    "never-reset": _let_go({_RESET: ""}),
    **_FITTED,
}


class Line(NamedTuple):
    """What an answer gave, and whether several steps were alive while one of them was called."""

    fixed: float
    per_sample: float
    crowded: bool = False


def _look(got: Any, make_step: Any, batches: Any, meter: _Meter) -> Line:
    judge = Judge()
    line = judge.listed(got, "a pair: fixed bytes, bytes a sample")
    if len(line) != 2:
        judge.no(seen=line, expected="two numbers")
    return Line(judge.number(line[0]), judge.number(line[1]), meter.crowded)


LINES = OverCases(
    memory_line,
    _cases,
    twins_of(memory_line, _TWINS),
    look=_look,
    draw=_draw,
    alike=lambda got, right: np.allclose(got[:2], right[:2], rtol=1e-6, atol=1e-6),
    otherwise=lambda got, *_: "keeps-all" if got.crowded else "wrong-line",
    situation=lambda make_step, batches, meter: f"batches {batches}",
    shown=lambda line: f"({line.fixed:,.1f}, {line.per_sample:,.1f}) bytes",
)


EXERCISE = Exercise(
    id="08.memory_line",
    title="The line of the memory",
    level=2,
    minutes=10,
    task="""
Write `memory_line(make_step, batches, meter)`: the pair (fixed bytes, bytes a sample) of the straight line through a
training step's peaks. `make_step(batch)` builds a network, its optimiser and a batch, and returns `step()`. The
optimiser makes its state in the **first** step, as Adam does. Meter one network at a time. `meter` is a module such
as `torch.cuda`, with `reset_peak_memory_stats()`, `max_memory_allocated()` and `memory_allocated()`. Fit all points by
least squares: `np.polyfit(x, y, 1)` returns slope and intercept.
""",
    hints=(
        "The step that you meter should be like all that follow it. Is the first one?",
        "A peak is the most since the last reset, so each batch needs its own reset. And a step that is still in a "
        "list still holds its network.",
        "For each batch: make the step, call it once, reset, call it again, note `max_memory_allocated()`. Then fit.",
    ),
    reference=memory_line,
    check_answer=quick_collection()(LINES),
    why="With the first step's peak, your program would fit the card and stop in the second step. An "
    "out-of-memory error in step 2 can have this cause.",
    diagnoses={
        "no-warm-up": "The first step was metered: the optimiser's state was not there yet, so the fixed part is "
        "too small.",
        "not-the-peak": "That is what is there after the step. The activations have gone by then: the peak is asked for.",
        "never-reset": "Without a reset a large batch's peak hides those of all smaller ones after it.",
        "through-zero": "The line was drawn through zero. A network takes memory before it has seen a sample.",
        "keeps-all": "Several steps were alive at once, each with its network and its batch. Let one go "
        "before the next is metered.",
    },
)
