"""Up, and down to nothing."""

from __future__ import annotations

import math
from collections.abc import Callable

from course_utils.exercises import Exercise
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def learning_rate(step, steps, peak, warm):
    return peak * min((step + 1) / warm, (steps - step) / (steps - warm + 1))


_CASES = [
    (step, steps, peak, warm)
    for steps, peak, warm in (
        (10, 0.4, 3),
        (125, 0.1, 25),
        (8, 2.0, 1),
        (6, 1.0, 6),
        (40, 0.03, 10),
    )
    for step in range(steps)
]


def _where_it_falls(twin: Callable[..., float]) -> Callable[..., float]:
    """Return a twin that is right where the warm-up is all there is: there it would divide by 0."""
    return lambda step, steps, peak, warm: (twin if warm < steps else learning_rate)(
        step, steps, peak, warm
    )


_FALL = "(steps - step) / (steps - warm + 1)"
_TWINS = {
    "first-step-lost": _where_it_falls(
        edited(learning_rate, {"step + 1": "step", _FALL: "(steps - step) / (steps - warm)"})
    ),
    "last-step-lost": _where_it_falls(
        edited(learning_rate, {_FALL: "(steps - 1 - step) / (steps - warm)"})
    ),
    "peak-twice": lambda step, steps, peak, warm: (
        peak * ((step + 1) / warm if step < warm else (steps - step) / (steps - warm))
    ),
    "stays-up": edited(learning_rate, {_FALL: "1"}),
    "no-warm-up": lambda step, steps, peak, warm: peak * (steps - step) / steps,
    "cosine": lambda step, steps, peak, warm: (
        peak * (step + 1) / warm
        if step < warm
        else peak * (1 + math.cos(math.pi * (step - warm + 1) / (steps - warm + 1))) / 2
    ),
    "share": edited(learning_rate, {"peak * ": ""}),
}


def _situation(step: int, steps: int, peak: float, warm: int) -> str:
    return f"step {step} of {steps} (peak {peak:g}, {warm} to warm up)"


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
    check_answer=OverCases(learning_rate, _CASES, _TWINS, situation=_situation),
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
