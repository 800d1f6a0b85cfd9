"""The exercises of lesson 05, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .accumulate import EXERCISE as accumulate
from .average_gradients import EXERCISE as average_gradients
from .rescue import EXERCISE as rescue
from .ring_all_reduce import EXERCISE as ring_all_reduce
from .shard import EXERCISE as shard
from .unhang import EXERCISE as unhang

EXERCISES: tuple[Exercise, ...] = (
    average_gradients,
    shard,
    accumulate,
    unhang,
    ring_all_reduce,
    rescue,
)
