"""The exercises of lesson 05, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    accumulate,
    average_gradients,
    learning_rate,
    rescue,
    ring_all_reduce,
    shard,
    sharded_bytes,
    unhang,
)

EXERCISES: tuple[Exercise, ...] = (
    average_gradients.EXERCISE,
    shard.EXERCISE,
    accumulate.EXERCISE,
    learning_rate.EXERCISE,
    rescue.EXERCISE,
    unhang.EXERCISE,
    sharded_bytes.EXERCISE,
    ring_all_reduce.EXERCISE,
)
