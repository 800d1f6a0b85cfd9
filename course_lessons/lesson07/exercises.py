"""The exercises of lesson 07, in their order."""

from __future__ import annotations

from course_utils.exercises import Exercise

from . import (
    event_seconds,
    mend_a,
    mend_b,
    mend_c,
    mend_d,
    mend_e,
    mend_f,
    mfu,
    regime,
)

EXERCISES: tuple[Exercise, ...] = (
    event_seconds.EXERCISE,
    regime.EXERCISE,
    mfu.EXERCISE,
    mend_a.EXERCISE,
    mend_b.EXERCISE,
    mend_c.EXERCISE,
    mend_d.EXERCISE,
    mend_e.EXERCISE,
    mend_f.EXERCISE,
)
