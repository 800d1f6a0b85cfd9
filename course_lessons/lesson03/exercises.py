"""The exercises of lesson 03, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .full_state import EXERCISE as full_state
from .index_batches import EXERCISE as index_batches
from .mean_loss import EXERCISE as mean_loss
from .save_atomic import EXERCISE as save_atomic
from .step_losses import EXERCISE as step_losses
from .train_accumulated import EXERCISE as train_accumulated
from .train_epoch import EXERCISE as train_epoch

EXERCISES: tuple[Exercise, ...] = (
    train_epoch,
    mean_loss,
    train_accumulated,
    index_batches,
    full_state,
    save_atomic,
    step_losses,
)
