"""How many steps has the schedule?"""

import math

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False):
    batches = samples // batch_size if drop_last else math.ceil(samples / batch_size)
    return epochs * math.ceil(batches / accumulate)


_CASES = (
    (8000, 100, 4, 3),
    (8000, 128, 4, 2),
    (130, 32, 2, 3),
    (190, 32, 3, 4, True),
    (60, 64, 1, 2),
    (60, 64, 1, 2, True),
    (10, 10, 8, 7),
    (240, 40, 3, 5),
)
_GROUPS = "math.ceil(batches / accumulate)"
_MISTAKES = {
    "drops-group": {_GROUPS: "(batches // accumulate)"},
    "counts-batches": {_GROUPS: "batches"},
    "multiplies": {_GROUPS: "batches * accumulate"},
    "drops-tail": {" if drop_last else math.ceil(samples / batch_size)": ""},
    "joins-epochs": (
        lambda n, b, k, e, drop=False: math.ceil((n * e // b if drop else math.ceil(n * e / b)) / k),
        lambda n, b, k, e, drop=False: math.ceil(n * e / (b * k)),
    ),
}


def _random_case(rng):
    """Return random arguments; two thirds of the cases may end in an incomplete batch."""
    batch_size = rng.randint(1, 40)
    tail = rng.choice((0, 1, 1)) * rng.randrange(batch_size)
    samples = max(1, batch_size * rng.randint(0, 12) + tail)
    return samples, batch_size, rng.randint(1, 5), rng.randint(1, 6), rng.random() < 0.5


def _describe_case(n, b, k, e, drop=False):
    """Return the case in words."""
    return _("{n} samples, batches of {b}, accumulate {k}, {e} epochs, drop_last={drop}").format(
        n=n, b=b, k=k, e=e, drop=drop
    )


EXERCISE = Exercise(
    id="09.optimizer_steps",
    title="How many steps has the schedule?",
    level=1,
    minutes=5,
    task="""
A schedule such as `OneCycleLR` wants to know the number of **optimiser steps** beforehand. Write
`optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False)`. Every `accumulate` batches make
one step, and at the end of each epoch those left over make one, too. The loader's last batch may be smaller;
`drop_last=True` leaves it out.
""",
    hints=(
        "Count in three stages. First count the batches in one epoch, then the optimiser's steps in one "
        "epoch, then the steps of all epochs. At each stage, ask what happens to what's left over. Does it "
        "count, or is it dropped?",
        "`n // k` rounds down, so it drops a group that isn't full. `math.ceil(n / k)` rounds up, so it "
        "counts that group as well. `drop_last` decides only about the samples at the end. The batches that "
        "are left over in an epoch always make a step.",
        """Suppose a farm has 70 eggs, 6 eggs fill a box, and 5 boxes fill a tray:

```python
import math

full = 70 // 6  # 11 full boxes
boxes = math.ceil(70 / 6)  # 12 boxes, and the last one holds only 4 eggs
trays = math.ceil(boxes / 5)  # 3 trays, and the last one isn't full
```""",
    ),
    reference=optimizer_steps,
    check_answer=ComparesToReference(
        optimizer_steps,
        _CASES,
        known_mistakes_of(optimizer_steps, _MISTAKES),
        draw=_random_case,
        situation=_describe_case,
    ),
    why="If you give a cosine schedule the number of batches, but four batches make one step, then training "
    "ends after a quarter of the schedule and the learning rate never comes down. You get no error, only a "
    "worse model.",
    diagnoses={
        "counts-batches": "Those are batches. With accumulation several of them make one step.",
        "multiplies": "The batches were multiplied by `accumulate`. Several of them make one step, so there "
        "are fewer steps.",
        "drops-tail": "The last, smaller batch is left out only with `drop_last=True`.",
        "drops-group": "The batches left over at the end of an epoch make a step, too.",
        "joins-epochs": "The samples of all epochs were put together. Each epoch has a last batch of its "
        "own.",
    },
)
