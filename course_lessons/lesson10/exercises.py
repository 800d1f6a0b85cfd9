"""The exercises of lesson 10, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import build_sharded, column_parallel, microbatches, sharded_bytes

EXERCISES: tuple[Exercise, ...] = (
    sharded_bytes.EXERCISE,
    build_sharded.EXERCISE,
    column_parallel.EXERCISE,
    microbatches.EXERCISE,
)
