"""Up, and down to nothing."""

import math

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


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


def _random_case(rng):
    """Return a random ``(step, steps, peak, warm)``."""
    steps = rng.randrange(2, 30)
    peak = round(10 ** rng.uniform(-3, 0.5), 4)
    return rng.randrange(steps), steps, peak, rng.randrange(1, steps + 1)


EXERCISE = Exercise(
    id="10.learning_rate",
    title="Up, and down to nothing",
    level=2,
    minutes=10,
    task="""
Write `learning_rate(step, steps, peak, warm)`. It returns the learning rate of step `step`, in a training of
`steps` steps that are counted from 0. The first `warm` steps are the warm-up, and there the rate rises by
equal amounts. It would be 0 just *before* the first step, and it's `peak` in the last step of the warm-up.
After that it falls by equal amounts, and it would be 0 just *after* the last step. So no step has rate 0,
and only one has `peak`. `warm` lies between 1 and `steps`.
""",
    hints=(
        "Draw the rates for 10 steps, 3 of them for warm-up. The first three are 1/3, 2/3 and 3/3 of the "
        "peak. How many equal amounts does it then take to come down to 0, which would be in step 10, just "
        "after the last one?",
        "Write the rise and the fall as two lines, each as a share of the peak. Going up, count the steps so "
        "far, this one included. Going down, count the amounts that are left until 0, and divide by the "
        "number you've just found. The lower of the two lines is the right one, so you don't need an `if`.",
        "Here's a lamp that brightens for 4 seconds and dims for 2. Unlike your steps, its first and "
        "last moments are 0.\n"
        """
```python
def light(second):
    up, down = second / 4, (6 - second) / 2
    return min(up, down)
print([light(second) for second in range(7)])
# [0.0, 0.25, 0.5, 0.75, 1.0, 0.5, 0.0]
```""",
    ),
    reference=learning_rate,
    check_answer=ComparesToReference(
        learning_rate,
        [(step, *training) for training in _TRAININGS for step in range(training[0])],
        known_mistakes_of(learning_rate, _MISTAKES, math=math),
        draw=_random_case,
    ),
    why="The rate rises first, so that it doesn't throw the weights about while they're still random. Then "
    "it falls until the time is up, because at a high rate the network learns fast but never settles.",
    diagnoses={
        "first-step-lost": "The first step has rate 0: a step that is paid for and learns nothing.",
        "last-step-lost": "The last step has rate 0. It would be 0 only after it.",
        "no-warm-up": "The first steps don't rise to the peak. While the weights are still random, a high "
        "rate throws them about.",
        "stays-up": "It never falls: the last steps rattle as much as the middle ones.",
        "cosine": "That falls along a cosine, as OneCycleLR does by default. Equal amounts are asked for "
        "here.",
    },
)
