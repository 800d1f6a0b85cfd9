"""The exercises of lesson 06, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .average_loss import EXERCISE as average_loss
from .batch_that_fits import EXERCISE as batch_that_fits
from .checkpointed import EXERCISE as checkpointed
from .diagnose import EXERCISE as diagnose
from .frugal_step import EXERCISE as frugal_step
from .largest_batch import EXERCISE as largest_batch
from .state_bytes import EXERCISE as state_bytes

EXERCISES: tuple[Exercise, ...] = (
    state_bytes,
    average_loss,
    diagnose,
    checkpointed,
    largest_batch,
    batch_that_fits,
    frugal_step,
)
