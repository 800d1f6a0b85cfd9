"""The language the course speaks: English as it is written, another from its catalogue. Needs Python alone.

``COURSE_LANGUAGE=zh`` chooses, before anything else of the course is imported: a Chinese lesson sets it in
its first cell. A text for a reader stands in `_`, as gettext has it; `N_` marks one that is a key too, and
`_` shows it.
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
    """Return the languages there are: English, and each folder with a list of terms."""
    return ("en", *sorted(path.parent.name for path in HERE.glob("*/terms.tsv")))


def chosen() -> str:
    """Return the language that ``COURSE_LANGUAGE`` names; English for one that the course does not have."""
    name = os.environ.get("COURSE_LANGUAGE", "").strip().lower()
    short = name.replace("_", "-").partition("-")[0]
    return short if short in languages() else "en"


def notebooks() -> str:
    """Return the folder of the lessons in the chosen language, from the course's."""
    return "notebooks" if chosen() == "en" else f"notebooks/{chosen()}"


def from_system() -> None:
    """Choose the system's language where ``COURSE_LANGUAGE`` says nothing: for commands, not for lessons."""
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
    """Return a language's translations: compiled in the wheel, read from the catalogues in a clone."""
    if language == "en":
        return gettext.NullTranslations()
    compiled = HERE / language / "messages.mo"
    data = compiled.read_bytes() if compiled.is_file() else catalogue.compiled(HERE / language)
    return gettext.GNUTranslations(io.BytesIO(data))


def _(message: str) -> str:
    """Return a text in the chosen language."""
    return translation(chosen()).gettext(message) if message else ""


def ngettext(singular: str, plural: str, n: int) -> str:
    """Return the form of a text that goes with a number, in the chosen language."""
    return translation(chosen()).ngettext(singular, plural, n)


def N_(message: str) -> str:
    """Return a text as it is: it marks a key for the catalogue, and `_` translates it where it is shown."""
    return message


def own_name(language: str) -> str:
    """Return what a language calls itself."""
    return translation(language).gettext(N_("English"))
