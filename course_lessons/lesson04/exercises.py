"""The exercises of lesson 04, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    accumulate,
    amp_step,
    checkpoint,
    choose_precision,
    clipped_step,
    follow_scale,
    logits_loss,
    lost,
)

EXERCISES: tuple[Exercise, ...] = (
    lost.EXERCISE,
    amp_step.EXERCISE,
    clipped_step.EXERCISE,
    choose_precision.EXERCISE,
    logits_loss.EXERCISE,
    follow_scale.EXERCISE,
    accumulate.EXERCISE,
    checkpoint.EXERCISE,
)
