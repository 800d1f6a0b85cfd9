"""The exercises of lesson 09, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    crop_flip,
    gain,
    learning_rate,
    time_to_target,
)

EXERCISES: tuple[Exercise, ...] = (
    gain.EXERCISE,
    crop_flip.EXERCISE,
    learning_rate.EXERCISE,
    time_to_target.EXERCISE,
)
