"""How many micro-batches fill a pipeline."""

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def microbatches(stages, most):
    number = 1
    while (stages - 1) / (number + stages - 1) > most:
        number += 1
    return number


_CASES = (  # where a limit, or a known mistake's, is met exactly, all are powers of two: no rounding decides
    (4, 0.3001),
    (5, 0.25),
    (4, 0.75),
    (1, 0.13),
    (1, 0.9),
    (2, 0.125),
    (2, 0.5),
    (9, 0.5),
)


def _random_case(rng):
    """Return a random ``(stages, most)``; the limit is between the idle shares of two numbers, so no rounding
    decides.
    """
    stages, number = rng.randint(2, 12), rng.randint(1, 30)
    return stages, round((stages - 1) / (number + stages - 1.5 + rng.uniform(-0.3, 0.3)), 6)


_SHARE = "(stages - 1) / (number + stages - 1)"
_TURNS = "((stages - 1) * (1 - most) / most)"
_MISTAKES = {
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
    id="11.microbatches",
    title="Fill the pipeline",
    level=1,
    minutes=6,
    task="""
A pipeline has `stages` equal stages, and a batch goes through it as equal micro-batches. Write
`microbatches(stages, most)`. It returns the smallest number of micro-batches, at least 1, with which each
stage is idle for at most the share `most` of the step. `most` is above 0 and below 1, and sending takes no
time.
""",
    hints=(
        "Draw a pipeline of 3 stages with 4 micro-batches. The last stage waits for two turns before its "
        "first one comes. How many turns does the whole forward pass take, and in how many of them does one "
        "stage work?",
        "In general, a stage works in `number` of `number + stages - 1` turns, and it's idle in the rest. "
        "What share is that of all the turns? The backward pass has the same share. It gets smaller with "
        "each micro-batch that you add, so start with the smallest number that's allowed, and stop as soon "
        "as the share is no longer above `most`.",
        "Here's such a search for another question. How many people have to share a taxi for 30 euros, "
        "so that each of them pays at most 4?\n"
        """
```python
people = 1
while 30 / people > 4:
    people += 1
print(people, 30 / people)  # 8 3.75
```""",
    ),
    reference=microbatches,
    check_answer=ComparesToReference(
        microbatches, _CASES, known_mistakes_of(microbatches, _MISTAKES), draw=_random_case
    ),
    limit=3.0,
    why="More micro-batches shrink the bubble, but each one gets smaller, and at some point its products "
    "are too small to keep a GPU busy. That sets the limit, together with the activations that wait for "
    "their backward pass.",
    diagnoses={
        "of-the-work": "You compare the idle turns with the working ones. The idle share is of all turns, "
        "idle ones included.",
        "all-stages": "You count an idle turn for every stage. A stage waits for the others only, so it's "
        "one turn fewer.",
        "busy-share": "That lets a stage work for at most the share `1 - most`. `most` is the share in "
        "which it is idle.",
        "rounded-down": "With so few micro-batches the idle share is above `most`. Where the limit isn't a "
        "whole number, round it up.",
    },
)
