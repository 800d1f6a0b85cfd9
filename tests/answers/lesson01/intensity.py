"""Known wrong answers to 01.intensity beside its twins, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson01.intensity import intensity
from course_utils.exercises.edited import edited

WRONG = {"other-count": edited(intensity, {" + k * m + n * m": ""})}
