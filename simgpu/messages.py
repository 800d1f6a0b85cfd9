"""What the simulated device says to a reader, in English unless ``translate`` is set."""

from __future__ import annotations

from collections.abc import Callable

translate: Callable[[str], str] = str
"""Returns a text in another language: gettext's."""


def _(message: str) -> str:
    """Return a text in the reader's language."""
    return translate(message)


def N_(message: str) -> str:
    """Return a text as it is: it marks one that `_` translates where it is shown."""
    return message
