"""The exercises of lesson 02, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .mean_loss import EXERCISE as mean_loss
from .move import EXERCISE as move
from .normaliser import EXERCISE as normaliser
from .one_step_bytes import EXERCISE as one_step_bytes
from .tower import EXERCISE as tower
from .train_step import EXERCISE as train_step
from .weighted_loss import EXERCISE as weighted_loss

EXERCISES: tuple[Exercise, ...] = (
    one_step_bytes,
    tower,
    normaliser,
    weighted_loss,
    train_step,
    move,
    mean_loss,
)
