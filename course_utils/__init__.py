"""Helpers for the lessons of *GPU Training with PyTorch*: timing, plots, checks of exercises, data.

Public names are imported on first use, so importing this package imports neither torch nor matplotlib.
"""

from __future__ import annotations

import importlib
from typing import Any

import course_language
from course_language import _

if course_language.chosen() != "en":
    from simgpu import messages

    messages.translate = course_language._
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
    "start": "session",
    "synchronize": "devices",
    "todo": "exercises",
}

__all__ = ["__version__", *sorted(_MODULE_BY_NAME)]


def __getattr__(name: str) -> Any:
    """Import a public name from its module on first use (PEP 562)."""
    if name not in _MODULE_BY_NAME:
        raise AttributeError(
            _("course_utils has no {name!r}; it offers {home}").format(
                name=name, home=", ".join(sorted(_MODULE_BY_NAME))
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
