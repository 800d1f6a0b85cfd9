"""What a notebook's setup cell calls."""

from __future__ import annotations

import importlib.util
import sys

from .exercises import LessonExercises, lesson

NEEDED = ("torch", "numpy", "matplotlib", "tqdm", "yaml")


def start(lesson_id: str) -> LessonExercises:
    """Get a notebook ready: check what it needs, set the plotting style, return its exercises.

    Parameters
    ----------
    lesson_id
        The lesson's number, such as ``"01"``.

    Raises
    ------
    ModuleNotFoundError
        Where this kernel's Python lacks something the lessons import; the message says what to do.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"this notebook's Python ({sys.executable}) has no {', '.join(missing)}. Close it and "
            "start the course with: python3 -m course_utils lab"
        )
    from . import plots

    plots.use_style()
    return lesson(lesson_id)
