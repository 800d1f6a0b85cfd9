"""Helpers for *GPU Training with PyTorch*: the timer, the plot, the checker, the data.

What the course teaches stands in the notebooks; here is only what would distract there. Names load
on first use, so importing this package imports neither torch nor matplotlib.
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

_HOME = {
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

__all__ = ["__version__", *sorted(_HOME)]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(
            _("course_utils has no {name!r}; it offers {home}").format(
                name=name, home=", ".join(sorted(_HOME))
            )
        )
    home = _HOME[name]
    if name == "todo":  # every lesson imports it: without the setup cell the first check would fail
        importlib.import_module(f"{__name__}.session").remind_of_setup()
    if not home:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
