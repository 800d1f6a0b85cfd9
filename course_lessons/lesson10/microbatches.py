"""How many micro-batches fill a pipeline."""

from __future__ import annotations

import random
from typing import Any

from course_lessons.shared.edited import edited, twins_of
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


def _share(share: str) -> Any:
    return edited(microbatches, {_SHARE: share})


def _return(value: str) -> Any:
    return edited(microbatches, {"return number": f"return {value}"})


_TWINS = {
    "of-the-work": _share("(stages - 1) / number"),
    "all-stages": _share("stages / (number + stages)"),
    "idle-stages": _share("stages / (number + stages - 1)"),
    "one-end": _share("(stages - 1) / (number + 2 * (stages - 1))"),
    "twice": _share("2 * (stages - 1) / (number + 2 * (stages - 1))"),
    "stages-forgotten": (_share("1 / number"), _share("1 / (number + 1)")),
    "strict": {"> most": ">= most"},
    "none": {"number = 1": "if stages == 1:\n    return 0\nnumber = 1"},
    "too-few": (_return("max(number - 1, 1)"), _share("(stages - 1) / (number + stages)")),
    "one-more": _return("number + 1"),
    "rounded-down": (_return(f"max(1, int({_TURNS} + 1e-9))"), _return(f"int({_TURNS} + 1e-9)")),
    "nearest": (_return(f"max(1, round{_TURNS})"), _return(f"round{_TURNS}")),
    "not-whole": (_return(_TURNS), _return(f"max(1, {_TURNS})")),
    "busy-share": {"> most": "> 1 - most"},
    "per-cent": {"> most": "> most / 100"},
    "doubles": {"number += 1": "number *= 2"},
    "begins-late": ({"number = 1": "number = 2"}, {"number = 1": "number = stages"}),
    "only-stages": (_return("stages"), _return("stages - 1"), _return("4 * stages")),
}


def _otherwise(got: float, right: float, stages: int, most: float) -> str:
    """Say what the number itself shows."""
    if got < 1:
        return "none"
    if got != int(got):
        return "not-whole"
    return "too-few" if got < right else "not-smallest"


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
    check_answer=OverCases(
        microbatches, _CASES, twins_of(microbatches, _TWINS), draw=_draw, otherwise=_otherwise
    ),
    limit=3.0,
    why="More micro-batches shrink the bubble, and each becomes smaller: at some point its products are too small to keep a GPU busy. "
    "That, and the activations that wait for their backward pass, set the limit.",
    diagnoses={
        "of-the-work": "That is the number of turns of the whole pass, `stages - 1` more than its micro-batches. The idle share is of all turns, "
        "idle ones included.",
        "all-stages": "A pass has as many idle turns as there are other stages: one fewer than stages.",
        "one-end": "The turns are counted at both ends, the idle ones at one. Of all turns a stage works in as many as there are "
        "micro-batches.",
        "twice": "That counts the idle turns of forward and backward, and the work of one of them.",
        "strict": "`most` itself is allowed: where it is met exactly, one fewer is enough.",
        "too-few": "With so few micro-batches the idle share is above `most`.",
        "not-smallest": "That is enough, and not the smallest number that is.",
        "idle-stages": "The turns are right. Of them a stage is idle in one fewer than there are stages.",
        "stages-forgotten": "The number of stages does not change your result. The more stages, the longer they wait.",
        "none": "There is at least one micro-batch: the batch itself.",
        "one-more": "That is one more than needed.",
        "rounded-down": "The number was rounded down, and the idle share is above `most` then.",
        "nearest": "The number was rounded to the nearest. Where that is down, the idle share is above `most`.",
        "not-whole": "A number of micro-batches is whole.",
        "per-cent": "The idle share and `most` are not in one unit. Both are shares: `most` is from 0 to 1.",
        "doubles": "Between the numbers that you tried are smaller ones that are enough.",
        "begins-late": "The search begins above 1, so the smallest number is missed where fewer are enough.",
        "only-stages": "That depends on the stages only. `most` decides too.",
        "busy-share": "That lets a stage work for at most the share `1 - most`. `most` is the share in which it is idle.",
    },
)
