"""The exercises of lesson 03, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .mean_loss import EXERCISE as mean_loss
from .step_losses import EXERCISE as step_losses
from .train_accumulated import EXERCISE as train_accumulated
from .train_epoch import EXERCISE as train_epoch

EXERCISES: tuple[Exercise, ...] = (
    train_epoch,
    mean_loss,
    train_accumulated,
    step_losses,
)
