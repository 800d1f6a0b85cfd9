"""How many steps has the schedule?"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise
from course_utils.exercises.forms import OverCases

from .checking import combined


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
    (400, 100, 4, 2, True),
    (600, 100, 3, 2, True),
    (194, 32, 3, 4, True),
    (131, 32, 4, 3, True),
)

_TAIL = "samples // batch_size if drop_last else math.ceil(samples / batch_size)"
_GROUPS = "math.ceil(batches / accumulate)"
_TAILS = {
    "drops-tail": {_TAIL: "samples // batch_size"},
    "keeps-tail": {_TAIL: "math.ceil(samples / batch_size)"},
    "inverted": {_TAIL: _TAIL.replace("if drop_last", "if not drop_last")},
    "one-too-many": {_TAIL: "samples // batch_size + (not drop_last)"},
    "one-too-few": {_TAIL: "math.ceil(samples / batch_size) - drop_last"},
    "rounds": {_TAIL: _TAIL.replace("math.ceil", "round")},
}
_TWINS = {
    **combined(
        optimizer_steps,
        {
            "drops-group": {_GROUPS: "(batches // accumulate)"},
            "one-group-more": {_GROUPS: "(batches // accumulate + 1)"},
            "counts-batches": {_GROUPS: "batches"},
            "multiplies": {_GROUPS: "batches * accumulate"},
            "rounds": {_GROUPS: "round(batches / accumulate)"},
            "fraction": {_GROUPS: "(batches / accumulate)"},
        },
        _TAILS,
        {"one-epoch": {"epochs * ": ""}},
    ),
    "over-epochs": combined(
        optimizer_steps,
        {
            "over-epochs": (
                {f"epochs * {_GROUPS}": "math.ceil(epochs * batches / accumulate)"},
                {f"epochs * {_GROUPS}": "epochs * batches // accumulate"},
            )
        },
        _TAILS,
    )["over-epochs"],
    "at-least-one": edited(optimizer_steps, {_GROUPS: f"max(1, {_GROUPS})"}),
    "drops-large": (
        lambda n, b, k, e, drop=False: e * (n // (b * k) if drop else math.ceil(n / (b * k))),
        lambda n, b, k, e, drop=False: (
            e * (math.ceil(n / b) // k if drop else math.ceil(n / (b * k)))
        ),
    ),
    "sizes-swapped": lambda n, b, k, e, drop=False: optimizer_steps(n, k, b, e, drop),
    "joins-epochs": (
        lambda n, b, k, e, drop=False: math.ceil(
            (n * e // b if drop else math.ceil(n * e / b)) / k
        ),
        lambda n, b, k, e, drop=False: math.ceil(n * e / (b * k)),
        lambda n, b, k, e, drop=False: n * e // (b * k),
    ),
}


def _draw(random: Random) -> tuple[Any, ...]:
    batch_size = random.randint(1, 40)
    tail = random.choice((0, 1, 1)) * random.randrange(batch_size)
    samples = max(1, batch_size * random.randint(0, 12) + tail)
    return samples, batch_size, random.randint(1, 5), random.randint(1, 6), random.random() < 0.5


def _situation(n: int, b: int, k: int, e: int, drop: bool = False) -> str:
    return f"{n} samples, batches of {b}, accumulate {k}, {e} epochs, drop_last={drop}"


EXERCISE = Exercise(
    id="08.optimizer_steps",
    title="How many steps has the schedule?",
    level=1,
    minutes=5,
    task="""
A schedule such as `OneCycleLR` wants to know the number of **optimiser steps** beforehand. Write
`optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False)`. Every `accumulate` batches make one step,
and at the end of each epoch those left over make one, too. The loader's last batch may be smaller;
`drop_last=True` leaves it out.
""",
    hints=(
        "Count in this order: batches in an epoch, steps in an epoch, steps in all.",
        "`math.ceil` for what is smaller and still counts, `//` for what is left out.",
    ),
    reference=optimizer_steps,
    check_answer=OverCases(optimizer_steps, _CASES, _TWINS, draw=_draw, situation=_situation),
    why="Told the number of batches in place of steps, a cosine schedule with four-fold accumulation ends at a quarter of its way: "
    "the learning rate never comes down. Nothing fails; the result is only worse.",
    diagnoses={
        "counts-batches": "Those are batches. With accumulation several of them make one step.",
        "multiplies": "The batches were multiplied by `accumulate`. Several of them make one step, so there are fewer steps.",
        "drops-tail": "The last, smaller batch is left out only with `drop_last=True`.",
        "keeps-tail": "With `drop_last=True` the last, smaller batch is left out.",
        "inverted": "`drop_last` works the wrong way round: True leaves the smaller batch out.",
        "drops-group": "The batches left over at the end of an epoch make a step, too.",
        "drops-large": "`drop_last` leaves out a smaller batch. Whole batches at the end of an epoch still make a step.",
        "over-epochs": "The groups begin anew with each epoch: they do not reach across its end.",
        "joins-epochs": "The samples of all epochs were put together. Each epoch has a last batch of its own.",
        "one-too-many": "Where the samples come out even, no smaller batch is left over. Round up; do not add one.",
        "one-too-few": "Where the samples come out even, `drop_last` has nothing to leave out.",
        "one-group-more": "Where the batches come out even, none is left over. Round up; do not add one.",
        "at-least-one": "An epoch without a batch has no step.",
        "rounds": "What is left over was rounded to the nearest whole number. A small rest counts as a large one does.",
        "one-epoch": "Those are the steps of one epoch.",
        "sizes-swapped": "`batch_size` and `accumulate` have changed places.",
        "fraction": "Parts were counted with fractions: count whole batches, and whole steps.",
        "wrong-value": "The number of steps is another.",
    },
)
