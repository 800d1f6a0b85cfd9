"""Messages of the simulated device: English unless ``translate`` is set."""

from __future__ import annotations

from collections.abc import Callable

translate: Callable[[str], str] = str
"""Returns the translation of a message; the course sets it to gettext's function."""


def _(message: str) -> str:
    """Return a message in the reader's language."""
    return translate(message)


def N_(message: str) -> str:
    """Return a message unchanged: marks it for extraction; `_` translates it where it is shown."""
    return message
