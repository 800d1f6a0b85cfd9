"""The exercises of lesson 03, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    full_state,
    index_batches,
    mean_loss,
    save_atomic,
    step_losses,
    train_accumulated,
    train_epoch,
)

EXERCISES: tuple[Exercise, ...] = (
    train_epoch.EXERCISE,
    mean_loss.EXERCISE,
    train_accumulated.EXERCISE,
    full_state.EXERCISE,
    step_losses.EXERCISE,
    index_batches.EXERCISE,
    save_atomic.EXERCISE,
)
