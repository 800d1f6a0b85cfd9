"""The exercises of lesson 07, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from .event_seconds import EXERCISE as event_seconds
from .mend_a import EXERCISE as mend_a
from .mend_b import EXERCISE as mend_b
from .mend_c import EXERCISE as mend_c
from .mend_d import EXERCISE as mend_d
from .mend_e import EXERCISE as mend_e
from .mend_f import EXERCISE as mend_f
from .mfu import EXERCISE as mfu
from .regime import EXERCISE as regime

EXERCISES: tuple[Exercise, ...] = (
    event_seconds,
    regime,
    mfu,
    mend_a,
    mend_b,
    mend_c,
    mend_d,
    mend_e,
    mend_f,
)
