"""Translate the course's texts with gettext; the source language is English. Needs only the standard library.

``COURSE_LANGUAGE=zh`` chooses the language; it must be set before the course is imported, as a Chinese
lesson's first cell does. Texts for the reader are wrapped in `_`, as usual with gettext. `N_` marks a text
that is also a key in the program, and is translated by `_` only when it is shown.
"""

from __future__ import annotations

import gettext
import io
import locale
import os
import sys
from functools import lru_cache
from pathlib import Path

from course_language import catalogue

HERE = Path(__file__).parent


@lru_cache(1)
def languages() -> tuple[str, ...]:
    """Return the available languages: ``"en"``, then each folder here that has a ``terms.tsv``."""
    return ("en", *sorted(path.parent.name for path in HERE.glob("*/terms.tsv")))


def chosen() -> str:
    """Return the language that ``COURSE_LANGUAGE`` names; ``"en"`` if it is not set or not available."""
    name = os.environ.get("COURSE_LANGUAGE", "").strip().lower()
    short = name.replace("_", "-").partition("-")[0]
    return short if short in languages() else "en"


def notebooks() -> str:
    """Return the folder of the notebooks in the chosen language, relative to the repository's root."""
    return "notebooks" if chosen() == "en" else f"notebooks/{chosen()}"


def from_system() -> None:
    """Set ``COURSE_LANGUAGE``, if it is unset, to the system's language; called by commands only."""
    if "COURSE_LANGUAGE" in os.environ:
        return
    values = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    name = next(filter(None, values), None)
    if name is None and sys.platform in ("win32", "darwin"):
        name = locale.getlocale()[0] or ""
        name = "zh" if name.startswith("Chinese") else name  # Windows' own name
    short = (name or "").partition("_")[0].partition(".")[0].lower()
    if short in languages():
        os.environ["COURSE_LANGUAGE"] = short


@lru_cache(8)
def translation(language: str) -> gettext.NullTranslations:
    """Return a language's translations: from messages.mo in the wheel, else from the .po files in a clone."""
    if language == "en":
        return gettext.NullTranslations()
    compiled = HERE / language / "messages.mo"
    data = compiled.read_bytes() if compiled.is_file() else catalogue.compile_mo(HERE / language)
    return gettext.GNUTranslations(io.BytesIO(data))


def _(message: str) -> str:
    """Return a text's translation into the chosen language, or the text itself if there is none."""
    return translation(chosen()).gettext(message) if message else ""


def ngettext(singular: str, plural: str, n: int) -> str:
    """Return the translation of a text in the plural form for ``n``, as ``gettext.ngettext``."""
    return translation(chosen()).ngettext(singular, plural, n)


def N_(message: str) -> str:
    """Return the text unchanged: marks it for the catalogue; `_` translates it when it is shown."""
    return message


def own_name(language: str) -> str:
    """Return a language's name in that language."""
    return translation(language).gettext(N_("English"))
