"""Helpers for the lessons of *GPU Training with PyTorch*: timing, plots, checks of exercises, data.

Public names are imported on first use, so importing this package imports neither torch nor matplotlib.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import course_language
from course_language import _

if TYPE_CHECKING:
    from .exercises import LessonExercises

__version__ = "0.1.0"

_MODULE_BY_NAME = {
    "bar": "tqdm_bar",
    "card": "evidence",
    "catch_up": "catchup",
    "course_map": "session",
    "expect_error": "errors",
    "explain": "error_index",
    "get_device": "devices",
    "keep": "storage",
    "load_digits": "data",
    "measure": "timing",
    "plots": "",
    "predict": "predictions",
    "synchronize": "devices",
    "todo": "exercises",
}

__all__ = ["__version__", *sorted([*_MODULE_BY_NAME, "start"])]


def _translate_simgpu() -> None:
    """Have the simulated device speak the chosen language."""
    if course_language.chosen() != "en":
        from simgpu import messages

        messages.translate = course_language._


_translate_simgpu()


def start(lesson_id: str, language: str = "en") -> LessonExercises:
    """Prepare a notebook for a lesson, say in a line that it is ready, and return the lesson's exercises.

    The course's modules translate some of their texts at import, so this is the first call of a lesson.

    Parameters
    ----------
    lesson_id
        The lesson's number, such as ``"01"``.
    language
        The language of what the course says in this process, such as ``"zh"``.

    Raises
    ------
    ModuleNotFoundError
        If this kernel's Python lacks a package that the lessons import; the message says what to do.
    """
    os.environ["COURSE_LANGUAGE"] = language
    _translate_simgpu()
    return importlib.import_module(f"{__name__}.session").start(lesson_id)


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use (PEP 562)."""
    if name not in _MODULE_BY_NAME:
        raise AttributeError(
            _("course_utils has no {name!r}; it offers {home}").format(
                name=name, home=", ".join(sorted([*_MODULE_BY_NAME, "start"]))
            )
        )
    module_name = _MODULE_BY_NAME[name]
    if name == "todo":  # every lesson imports it, so this is where a missing setup cell is noticed
        importlib.import_module(f"{__name__}.session").remind_of_setup()
    if not module_name:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(f"{__name__}.{module_name}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
