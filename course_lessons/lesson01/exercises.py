"""The exercises of lesson 01, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .intensity import EXERCISE as intensity
from .least_seconds import EXERCISE as least_seconds
from .pick_device import EXERCISE as pick_device
from .smallest_winner import EXERCISE as smallest_winner
from .speedup import EXERCISE as speedup
from .time_it import EXERCISE as time_it

EXERCISES: tuple[Exercise, ...] = (
    pick_device,
    time_it,
    speedup,
    intensity,
    least_seconds,
    smallest_winner,
)
