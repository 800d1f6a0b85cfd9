"""Exercises of lesson 08: the take-home problems, and a graded set over all lessons, a file a subject."""

from __future__ import annotations

from ..core import Exercise
from . import devices, loop, memory, precision, several, speed, takehome

EXERCISES: tuple[Exercise, ...] = (
    *takehome.EXERCISES,
    *devices.EXERCISES,
    *loop.EXERCISES,
    *precision.EXERCISES,
    *memory.EXERCISES,
    *speed.EXERCISES,
    *several.EXERCISES,
)
