"""How many steps has the schedule?"""

from __future__ import annotations

import math

from course_utils.exercises import Exercise
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False):
    batches = samples // batch_size if drop_last else math.ceil(samples / batch_size)
    return epochs * math.ceil(batches / accumulate)


_CASES = (
    (8000, 100, 4, 3),
    (8000, 128, 4, 2),
    (1000, 100, 4, 5),
    (130, 32, 2, 3),
    (130, 32, 2, 3, True),
    (190, 32, 3, 4, True),
    (60, 64, 1, 2),
    (60, 64, 1, 2, True),
    (10, 10, 8, 7),
    (240, 40, 3, 5),
    (350, 100, 2, 3),
    (700, 100, 4, 2, True),
)

_STEPS = "math.ceil(batches / accumulate)"
_TWINS = {
    "counts-batches": edited(optimizer_steps, {_STEPS: "batches"}),
    "drops-tail": edited(
        optimizer_steps, {" if drop_last else math.ceil(samples / batch_size)": ""}
    ),
    "drops-large": lambda n, b, k, e, drop=False: (
        e * (n // (b * k) + (not drop and n % (b * k) > 0))
    ),
    "drops-group": edited(optimizer_steps, {_STEPS: "(batches // accumulate)"}),
    "floors-all": lambda n, b, k, e, drop=False: e * (n // (b * k)),
    "over-epochs": edited(
        optimizer_steps, {f"epochs * {_STEPS}": "math.ceil(epochs * batches / accumulate)"}
    ),
    "keeps-tail": edited(optimizer_steps, {"samples // batch_size if drop_last else ": ""}),
    "one-too-many": edited(
        optimizer_steps, {"math.ceil(samples / batch_size)": "samples // batch_size + 1"}
    ),
    "one-epoch": edited(optimizer_steps, {"epochs * ": ""}),
    "fraction": lambda n, b, k, e, drop=False: e * n / (b * k),
}


def _situation(n: int, b: int, k: int, e: int, drop: bool = False) -> str:
    return f"{n} samples, batches of {b}, accumulate {k}, {e} epochs, drop_last={drop}"


EXERCISE = Exercise(
    id="08.optimizer_steps",
    title="How many steps has the schedule?",
    level=1,
    minutes=5,
    task="""
A learning-rate schedule such as `OneCycleLR` or cosine wants to know the number of **optimiser steps** beforehand. Write
`optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False)`. The loader's last batch may be smaller; with
`drop_last=True` it is left out. Every `accumulate` batches make one step, and at the end of each epoch the batches that are
left over make one, too.
""",
    hints=(
        "Count in this order: batches in an epoch, steps in an epoch, steps in all.",
        "`math.ceil` for what is smaller and still counts, `//` for what is left out.",
    ),
    reference=optimizer_steps,
    check_answer=OverCases(optimizer_steps, _CASES, _TWINS, situation=_situation),
    why="Told the number of batches in place of steps, a cosine schedule with four-fold accumulation ends at a quarter of its way: "
    "the learning rate never comes down. Nothing fails; the result is only worse.",
    diagnoses={
        "counts-batches": "Those are batches. With accumulation several of them make one step.",
        "drops-tail": "The last, smaller batch is left out only with `drop_last=True`.",
        "drops-group": "The batches left over at the end of an epoch make a step, too.",
        "floors-all": "What does not fill a whole step was left out.",
        "over-epochs": "The groups begin anew with each epoch: they do not reach across its end.",
        "keeps-tail": "With `drop_last=True` the last, smaller batch is left out.",
        "drops-large": "`drop_last` leaves out a smaller batch. Whole batches at the end of an epoch still "
        "make a step.",
        "one-too-many": "Where the samples come out even, no smaller batch is left over. Round up; do not add one.",
        "one-epoch": "Those are the steps of one epoch.",
        "fraction": "A part of a batch is a batch, or is left out: count whole ones.",
        "wrong-value": "The number of steps is another.",
    },
)
