"""Known wrong answers to every exercise, in a file of the exercise's name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from course_utils.exercises import Exercise


def wrong(exercise: Exercise) -> Mapping[str, Any]:
    """Return, for each diagnosis that has one, an answer that must receive it."""
    lesson, name = exercise.id.split(".")
    return importlib.import_module(f"answers.lesson{lesson}.{name}").WRONG
