"""The exercises of lesson 02, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    mean_loss,
    move,
    normaliser,
    one_step_bytes,
    tower,
    train_step,
    weighted_loss,
)

EXERCISES: tuple[Exercise, ...] = (
    one_step_bytes.EXERCISE,
    tower.EXERCISE,
    normaliser.EXERCISE,
    weighted_loss.EXERCISE,
    train_step.EXERCISE,
    move.EXERCISE,
    mean_loss.EXERCISE,
)
