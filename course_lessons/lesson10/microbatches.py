"""How many micro-batches fill a pipeline."""

from __future__ import annotations

from course_utils.exercises import Exercise
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def microbatches(stages, most):
    number = 1
    while (stages - 1) / (number + stages - 1) > most:
        number += 1
    return number


_CASES = (  # exact fractions where the limit is met exactly, so that no rounding decides
    (4, 0.25),
    (4, 0.3),
    (4, 0.75),
    (1, 0.1),
    (8, 0.125),
    (8, 0.2),
    (2, 0.5),
    (2, 0.07),
    (16, 0.11),
    (5, 0.9),
    (3, 0.5),
)

_SHARE = "(stages - 1) / (number + stages - 1)"
_TWINS = {
    "of-the-work": edited(microbatches, {_SHARE: "(stages - 1) / number"}),
    "all-stages": edited(microbatches, {_SHARE: "stages / (number + stages)"}),
    "one-end": edited(microbatches, {_SHARE: "(stages - 1) / (number + 2 * (stages - 1))"}),
    "twice": edited(microbatches, {_SHARE: "2 * (stages - 1) / (number + 2 * (stages - 1))"}),
    "strict": edited(microbatches, {"> most": ">= most"}),
    "too-few": edited(microbatches, {"return number": "return max(number - 1, 1)"}),
    "busy-share": edited(microbatches, {"> most": "> 1 - most"}),
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
    check_answer=OverCases(microbatches, _CASES, _TWINS),
    why="More micro-batches shrink the bubble, and each becomes smaller: at some point its products are too small to keep a GPU busy. "
    "That, and the activations that wait for their backward pass, set the limit.",
    diagnoses={
        "of-the-work": "That compares the idle turns with the turns of work, or it is the number of turns of a whole pass. The share is of all "
        "turns, idle ones included, and asked for are the micro-batches.",
        "all-stages": "A pass has as many idle turns as there are other stages: one fewer than stages.",
        "one-end": "The turns are counted at both ends, the idle ones at one. Of all turns a stage works in as many as there are "
        "micro-batches.",
        "twice": "That counts the idle turns of forward and backward, and the work of one of them.",
        "strict": "`most` itself is allowed.",
        "too-few": "With one micro-batch fewer the idle share is above `most`.",
        "busy-share": "That lets a stage work for at most the share `1 - most`. `most` is the share in which it is idle.",
    },
)
