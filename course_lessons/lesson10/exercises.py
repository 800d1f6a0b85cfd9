"""The exercises of lesson 10, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .build_sharded import EXERCISE as build_sharded
from .column_parallel import EXERCISE as column_parallel
from .microbatches import EXERCISE as microbatches
from .sharded_bytes import EXERCISE as sharded_bytes

EXERCISES: tuple[Exercise, ...] = (sharded_bytes, build_sharded, column_parallel, microbatches)
