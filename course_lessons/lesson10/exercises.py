"""The exercises of lesson 10, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .crop_flip import EXERCISE as crop_flip
from .gain import EXERCISE as gain
from .learning_rate import EXERCISE as learning_rate
from .time_to_target import EXERCISE as time_to_target

EXERCISES: tuple[Exercise, ...] = (gain, crop_flip, learning_rate, time_to_target)
