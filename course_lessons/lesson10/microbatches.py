"""How many micro-batches fill a pipeline."""

from __future__ import annotations

import random

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases


def microbatches(stages, most):
    number = 1
    while (stages - 1) / (number + stages - 1) > most:
        number += 1
    return number


_CASES = (  # where a limit, or that of a twin, is met exactly, all are powers of two: no rounding decides
    (4, 0.3001),
    (5, 0.25),
    (4, 0.75),
    (1, 0.13),
    (1, 0.9),
    (2, 0.125),
    (2, 0.5),
    (2, 0.071),
    (16, 0.11),
    (5, 0.91),
    (3, 0.5),
    (9, 0.5),
)


def _draw(source: random.Random) -> tuple[int, float]:
    """Draw a limit between the idle shares of two numbers, so that no rounding decides."""
    stages, number = source.randint(2, 12), source.randint(1, 30)
    return stages, round((stages - 1) / (number + stages - 1.5 + source.uniform(-0.3, 0.3)), 6)


_SHARE = "(stages - 1) / (number + stages - 1)"
_TURNS = "((stages - 1) * (1 - most) / most)"
_TWINS = {
    "of-the-work": {_SHARE: "(stages - 1) / number"},
    "all-stages": (
        {_SHARE: "stages / (number + stages)"},
        {_SHARE: "stages / (number + stages - 1)"},
    ),
    "busy-share": {"> most": "> 1 - most"},
    "rounded-down": (
        {"return number": f"return max(1, int({_TURNS} + 1e-9))"},
        {"return number": f"return int({_TURNS} + 1e-9)"},
    ),
}


EXERCISE = Exercise(
    id="10.microbatches",
    title="Fill the pipeline",
    level=1,
    minutes=6,
    task="""
A pipeline of `stages` equal stages takes a batch as equal micro-batches. Write `microbatches(stages, most)`: the smallest number of
micro-batches, at least 1, with which each stage is idle for at most the share `most` of the step. `most` is above 0 and below 1; sending takes no
time.
""",
    hints=(
        "The last stage waits for `stages - 1` turns before its first micro-batch. How many turns does the whole pass take?",
        "Of `number + stages - 1` turns a stage works in `number`. Which share is left? The backward pass has the same share.",
        "Begin with 1, and add 1 while the idle share is above `most`.",
    ),
    reference=microbatches,
    check_answer=OverCases(microbatches, _CASES, twins_of(microbatches, _TWINS), draw=_draw),
    limit=3.0,
    why="More micro-batches shrink the bubble, and each becomes smaller: at some point its products are too small to keep a GPU busy. "
    "That, and the activations that wait for their backward pass, set the limit.",
    diagnoses={
        "of-the-work": "You compare the idle turns with the working ones. The idle share is of all turns, idle ones included.",
        "all-stages": "You count an idle turn for every stage. A stage waits for the others only, so it's one turn fewer.",
        "busy-share": "That lets a stage work for at most the share `1 - most`. `most` is the share in which it is idle.",
        "rounded-down": "With so few micro-batches the idle share is above `most`. Where the limit isn't a whole number, round it up.",
    },
)
