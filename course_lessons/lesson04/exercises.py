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
    logits_loss.EXERCISE,
    lost.EXERCISE,
    amp_step.EXERCISE,
    follow_scale.EXERCISE,
    clipped_step.EXERCISE,
    accumulate.EXERCISE,
    checkpoint.EXERCISE,
    choose_precision.EXERCISE,
)
