"""Known answers to 09.learning_rate that its check's twins are not."""

from __future__ import annotations

import torch

from course_lessons.lesson09.learning_rate import learning_rate
from course_utils.exercises.edited import edited


def _rate_by_branches(step, steps, peak, warm):
    if step < warm:
        return peak / warm * (step + 1)
    return peak * (1 - (step - (warm - 1)) / (steps - (warm - 1)))


_FALL = "(steps - step) / (steps - warm + 1)"
WRONG = {
    "first-step-lost": edited(
        learning_rate, {"step + 1": "step", _FALL: "(steps - step) / (steps - warm)"}
    ),
    "last-step-lost": edited(learning_rate, {_FALL: "(steps - 1 - step) / (steps - warm)"}),
    "wrong-value": lambda step, steps, peak, warm: 0.07,
    "stays-up": lambda step, steps, peak, warm: peak,
}
RIGHT = {
    "by branches": _rate_by_branches,
    "as a tensor": lambda *case: torch.tensor(learning_rate(*case), dtype=torch.float64),
}
