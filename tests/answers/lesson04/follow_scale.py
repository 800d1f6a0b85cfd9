"""Known wrong answers to 04.follow_scale, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson04.follow_scale import (
    scale_back_to_start,
    scale_before,
    scale_by_number,
    scale_grows_on,
    scale_not_reset,
    scale_one_late,
    scale_with_floor,
)

WRONG = {
    "not-reset": scale_not_reset,
    "by-number": scale_by_number,
    "grows-on": scale_grows_on,
    "before-the-step": scale_before,
    "one-late": scale_one_late,
    "back-to-start": scale_back_to_start,
    "floor": scale_with_floor,
}
