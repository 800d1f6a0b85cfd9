"""Known wrong answers to 08.optimizer_steps, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lessons.lesson08.optimizer_steps import STEP_TWINS


def _steps_with(twin: str) -> Callable[..., Any]:
    def optimizer_steps(samples, batch_size, accumulate, epochs, drop_last=False):
        return STEP_TWINS[twin](samples, batch_size, accumulate, epochs, drop_last)

    return optimizer_steps


WRONG = {
    "counts-batches": _steps_with("counts-batches"),
    "drops-tail": _steps_with("drops-tail"),
    "drops-group": _steps_with("drops-group"),
    "over-epochs": _steps_with("over-epochs"),
    "keeps-tail": _steps_with("keeps-tail"),
    "drops-large": _steps_with("drops-large"),
    "one-too-many": _steps_with("one-too-many"),
}
