"""Paths of the lessons' content: the package ``course_lessons``, located by its name, and the handbook.

The helpers do not import the content: ``course_lessons`` imports ``course_utils``, which reads its files.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """Return the folder of the package ``course_lessons``.

    Raises
    ------
    ModuleNotFoundError
        If the package is not installed.
    """
    spec = importlib.util.find_spec("course_lessons")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'course_lessons'", name="course_lessons")
    return Path(spec.origin).parent


def recorded(name: str) -> Path:
    """Return the path of a file, or with "" the folder, of recorded results (``course_lessons/recorded``)."""
    return folder() / "recorded" / name


def handbook() -> Path:
    """Return the handbook's folder: beside this package in a clone, else inside the installed package."""
    package = Path(__file__).parent
    clone = package.parent / "handbook"
    return clone if clone.is_dir() else package / "handbook"
