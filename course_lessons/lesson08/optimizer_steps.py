"""How many steps has the schedule?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from course_utils.exercises import Exercise, Judge


def optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False):
    batches = samples // batch_size if drop_last else math.ceil(samples / batch_size)
    return epochs * math.ceil(batches / accumulate)


def _batches_of(samples: int, size: int, drop_last: bool) -> int:
    return samples // size if drop_last else math.ceil(samples / size)


STEP_TWINS: dict[str, Callable[[int, int, int, int, bool], float]] = {
    "counts-batches": lambda n, b, k, e, drop: e * _batches_of(n, b, drop),
    "drops-tail": lambda n, b, k, e, drop: e * math.ceil((n // b) / k),
    "drops-large": lambda n, b, k, e, drop: (
        e * (n // (b * k)) if drop else e * math.ceil(n / (b * k))
    ),
    "drops-group": lambda n, b, k, e, drop: e * (_batches_of(n, b, drop) // k),
    "floors-all": lambda n, b, k, e, drop: e * (n // (b * k)),
    "over-epochs": lambda n, b, k, e, drop: math.ceil(e * _batches_of(n, b, drop) / k),
    "keeps-tail": lambda n, b, k, e, drop: e * math.ceil(math.ceil(n / b) / k),
    "one-too-many": lambda n, b, k, e, drop: e * math.ceil((n // b + (not drop)) / k),
    "one-epoch": lambda n, b, k, e, drop: math.ceil(_batches_of(n, b, drop) / k),
    "fraction": lambda n, b, k, e, drop: e * n / (b * k),
}


def _check_optimizer_steps(answer: Callable[..., Any], judge: Judge) -> None:
    for case in (
        (8000, 100, 4, 3, False),
        (8000, 128, 4, 2, False),
        (1000, 100, 4, 5, False),
        (130, 32, 2, 3, False),
        (130, 32, 2, 3, True),
        (190, 32, 3, 4, True),
        (60, 64, 1, 2, False),
        (60, 64, 1, 2, True),
        (10, 10, 8, 7, False),
    ):
        got = judge.number(answer(*case) if case[-1] else answer(*case[:-1]))
        right = optimizer_steps(*case)
        if got == right:
            continue
        like = [name for name, twin in STEP_TWINS.items() if twin(*case) == got]
        n, b, k, e, drop = case
        judge.no(
            like[0] if like else "wrong-value",
            seen=f"{got:g} for {n} samples, batches of {b}, accumulate {k}, {e} epochs, drop_last={drop}",
            expected=right,
        )


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
    check_answer=_check_optimizer_steps,
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
