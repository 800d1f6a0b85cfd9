"""The exercises of lesson 06, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    average_loss,
    batch_that_fits,
    checkpointed,
    diagnose,
    frugal_step,
    largest_batch,
    state_bytes,
)

EXERCISES: tuple[Exercise, ...] = (
    state_bytes.EXERCISE,
    average_loss.EXERCISE,
    diagnose.EXERCISE,
    checkpointed.EXERCISE,
    largest_batch.EXERCISE,
    batch_that_fits.EXERCISE,
    frugal_step.EXERCISE,
)
