"""Up, and down to nothing."""

from __future__ import annotations

import math
from random import Random

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases


def learning_rate(step, steps, peak, warm):
    return peak * min((step + 1) / warm, (steps - step) / (steps - warm + 1))


_TRAININGS = ((10, 0.4, 3), (12, 0.1, 4), (8, 2.0, 1), (6, 0.3, 6), (1, 0.5, 1), (40, 0.03, 10))
_RISE, _FALL = "(step + 1) / warm", "(steps - step) / (steps - warm + 1)"
_MISTAKES = {
    "first-step-lost": {_RISE: "step / warm"},
    "last-step-lost": {_FALL: "(steps - 1 - step) / max(1, steps - warm)"},
    "no-warm-up": ({_RISE: "1"}, {f"min({_RISE}, {_FALL})": "(steps - step) / steps"}),
    "stays-up": {_FALL: "1"},
    "cosine": {
        f"min({_RISE}, {_FALL})": f"({_RISE} if step < warm else (1 + math.cos(math.pi * (1 - {_FALL}))) / 2)"
    },
}


def _draw(random: Random) -> tuple[int, int, float, int]:
    steps = random.randrange(2, 30)
    peak = round(10 ** random.uniform(-3, 0.5), 4)
    return random.randrange(steps), steps, peak, random.randrange(1, steps + 1)


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
    check_answer=OverCases(
        learning_rate,
        [(step, *training) for training in _TRAININGS for step in range(training[0])],
        twins_of(learning_rate, _MISTAKES, math=math),
        draw=_draw,
    ),
    why="A high rate learns fast and rattles; a low one settles. Rising first, it does not throw the weights about while they "
    "are still random; falling to the end, it settles exactly when the time is up.",
    diagnoses={
        "first-step-lost": "The first step has rate 0: a step that is paid for and learns nothing.",
        "last-step-lost": "The last step has rate 0. It would be 0 only after it.",
        "no-warm-up": "The first steps don't rise to the peak. While the weights are still random, a high rate throws them about.",
        "stays-up": "It never falls: the last steps rattle as much as the middle ones.",
        "cosine": "That falls along a cosine, as OneCycleLR does by default. Equal amounts are asked for here.",
    },
)
