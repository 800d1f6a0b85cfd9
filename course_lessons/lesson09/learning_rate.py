"""Up, and down to nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from course_utils.exercises import Exercise, Judge


def learning_rate(step, steps, peak, warm):
    return peak * min((step + 1) / warm, (steps - step) / (steps - warm + 1))


RATE_TWINS: dict[str, Callable[[int, int, float, int], float]] = {
    "first-step-lost": lambda step, steps, peak, warm: (
        peak * min(step / warm, (steps - step) / (steps - warm))
    ),
    "last-step-lost": lambda step, steps, peak, warm: (
        peak * min((step + 1) / warm, (steps - 1 - step) / (steps - warm))
    ),
    "peak-twice": lambda step, steps, peak, warm: (
        peak * ((step + 1) / warm if step < warm else (steps - step) / (steps - warm))
    ),
    "stays-up": lambda step, steps, peak, warm: peak * min((step + 1) / warm, 1),
    "no-warm-up": lambda step, steps, peak, warm: peak * (steps - step) / steps,
    "cosine": lambda step, steps, peak, warm: (
        peak * (step + 1) / warm
        if step < warm
        else peak * (1 + math.cos(math.pi * (step - warm + 1) / (steps - warm + 1))) / 2
    ),
    "share": lambda step, steps, peak, warm: learning_rate(step, steps, 1.0, warm),
}


def _check_learning_rate(answer: Callable[..., Any], judge: Judge) -> None:
    for steps, peak, warm in (
        (10, 0.4, 3),
        (125, 0.1, 25),
        (8, 2.0, 1),
        (6, 1.0, 6),
        (40, 0.03, 10),
    ):
        got = [judge.number(answer(step, steps, peak, warm)) for step in range(steps)]
        right = [learning_rate(step, steps, peak, warm) for step in range(steps)]
        wrong = [i for i in range(steps) if not math.isclose(got[i], right[i], rel_tol=1e-6)]
        if wrong:
            judge.no(
                _rate_like(got, steps, peak, warm),
                seen=f"step {wrong[0]} of {steps}: {got[wrong[0]]:.6g} (peak {peak:g}, {warm} to warm up)",
                expected=f"{right[wrong[0]]:.6g}",
            )


def _rate_like(got: Sequence[float], steps: int, peak: float, warm: int) -> str:
    for name, twin in RATE_TWINS.items():
        try:
            other = [twin(step, steps, peak, warm) for step in range(steps)]
        except ZeroDivisionError:
            continue
        if all(math.isclose(a, b, rel_tol=1e-6) for a, b in zip(got, other, strict=True)):
            return name
    return "wrong-value"


EXERCISE = Exercise(
    id="09.learning_rate",
    title="Up, and down to nothing",
    level=2,
    minutes=10,
    task="""
Write `learning_rate(step, steps, peak, warm)`: the rate of step `step`, counted from 0, in a training of `steps`
steps. It rises by equal amounts: it would be 0 just *before* the first step, and is `peak` in the last of the
`warm` steps of warm-up. Then it falls by equal amounts: it would be 0 just *after* the last step. No step has rate 0, and
only one has `peak`. `warm` lies between 1 and `steps`.
""",
    hints=(
        "Draw it for 10 steps of which 3 are warm-up. The three are 1/3, 2/3, 3/3 of the peak. How many equal amounts then lead "
        "from the peak to 0?",
        "The peak is step warm − 1, and 0 would be step `steps`: so it takes steps − warm + 1 amounts down. In step `step`, "
        "steps − step of them are still left.",
        "The rate is the smaller of two lines, times the peak.",
    ),
    reference=learning_rate,
    check_answer=_check_learning_rate,
    why="A high rate learns fast and rattles; a low one settles. Rising first, it does not throw the weights about while they "
    "are still random; falling to the end, it settles exactly when the time is up.",
    diagnoses={
        "first-step-lost": "The first step has rate 0: a step that is paid for and learns nothing.",
        "last-step-lost": "The last step has rate 0. It would be 0 only after it.",
        "peak-twice": "Two steps have the peak: the fall begins one step late, and is a little steeper for it.",
        "stays-up": "It never falls: the last steps rattle as much as the middle ones.",
        "no-warm-up": "It begins near the peak: nothing rises.",
        "cosine": "That falls along a cosine, as OneCycleLR does by default. Equal amounts are asked for here.",
        "share": "That is the share of the peak, not the rate.",
    },
)
