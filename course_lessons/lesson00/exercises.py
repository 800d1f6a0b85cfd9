"""The exercises of lesson 00, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    shut_door,
    weight_bytes,
)

EXERCISES: tuple[Exercise, ...] = (
    weight_bytes.EXERCISE,
    shut_door.EXERCISE,
)
