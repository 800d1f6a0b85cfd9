"""Where the lessons' content is: the package ``course_lessons``, found by its name.

Helpers and content are apart: content imports helpers, and helpers read content's files.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """Return the folder of the lessons' content.

    Raises
    ------
    ModuleNotFoundError
        Where the package is not installed beside this one.
    """
    spec = importlib.util.find_spec("course_lessons")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'course_lessons'", name="course_lessons")
    return Path(spec.origin).parent


def recorded(name: str) -> Path:
    """Return the place of a recorded file."""
    return folder() / "recorded" / name


def handbook() -> Path:
    """Return the handbook's folder: in a clone the one beside this package, else the installed one."""
    package = Path(__file__).parent
    clone = package.parent / "handbook"
    return clone if clone.is_dir() else package / "handbook"
