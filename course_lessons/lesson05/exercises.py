"""The exercises of lesson 05, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    accumulate,
    average_gradients,
    rescue,
    ring_all_reduce,
    shard,
    unhang,
)

EXERCISES: tuple[Exercise, ...] = (
    average_gradients.EXERCISE,
    shard.EXERCISE,
    accumulate.EXERCISE,
    unhang.EXERCISE,
    ring_all_reduce.EXERCISE,
    rescue.EXERCISE,
)
