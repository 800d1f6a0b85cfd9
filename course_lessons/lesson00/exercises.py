"""The exercises of lesson 00, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .shut_door import EXERCISE as shut_door
from .weight_bytes import EXERCISE as weight_bytes

EXERCISES: tuple[Exercise, ...] = (weight_bytes, shut_door)
