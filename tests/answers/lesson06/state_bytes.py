"""Known wrong answers to 06.state_bytes, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson06.state_bytes import (
    state_buffers_learn,
    state_existing_gradients,
    state_in_elements,
    state_of_frozen,
    state_saved_buffers,
    state_tied_twice,
    state_without_dtype,
)

WRONG = {
    "elements": state_in_elements,
    "always-four": state_without_dtype,
    "frozen": state_of_frozen,
    "tied-twice": state_tied_twice,
    "saved-buffers": state_saved_buffers,
    "buffers-learn": state_buffers_learn,
    "no-gradient-yet": state_existing_gradients,
}
