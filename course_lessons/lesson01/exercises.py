"""The exercises of lesson 01, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    intensity,
    least_seconds,
    pick_device,
    smallest_winner,
    speedup,
    time_it,
)

EXERCISES: tuple[Exercise, ...] = (
    pick_device.EXERCISE,
    time_it.EXERCISE,
    speedup.EXERCISE,
    intensity.EXERCISE,
    least_seconds.EXERCISE,
    smallest_winner.EXERCISE,
)
