"""The language the course speaks: English as it is written, another from its catalogue. Needs Python alone.

``COURSE_LANGUAGE=zh`` chooses; a Chinese lesson sets it in its first cell. Texts are replaced while a module is
compiled (as pytest rewrites ``assert``), so the course's own source stays plain English, f-strings and all, and
English costs nothing. ``texts.py`` says what is a text; ``zh/`` has the catalogues, the font and the terms.
"""

from __future__ import annotations

import ast
import gettext
import importlib.machinery
import locale
import os
import re
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGES = ("course_utils", "course_lessons", "simgpu")
AUTHORING = (
    "tools.authoring.cells",
    "tools.authoring.claims",
    "tools.authoring.pages",
    "tools.authoring.short_path",
    "tools.classroom.class_progress",
    "tools.commands.class_report",
    "tools.commands.lesson_copies",
    "tools.commands.slides",
)


def languages() -> tuple[str, ...]:
    """Return the languages there are: English, and each folder with a catalogue."""
    return ("en", *sorted(found.parent.name for found in HERE.glob("*/messages.mo")))


def chosen() -> str:
    """Return the language that ``COURSE_LANGUAGE`` names; English for one that the course does not have."""
    asked = (
        os.environ.get("COURSE_LANGUAGE", "").strip().lower().replace("_", "-").partition("-")[0]
    )
    return asked if asked in languages() else "en"


def notebooks() -> str:
    """Return the folder of the lessons in the chosen language, from the course's."""
    return "notebooks" if chosen() == "en" else f"notebooks/{chosen()}"


def from_system() -> None:
    """Choose the system's language where ``COURSE_LANGUAGE`` says nothing: for commands, not for lessons."""
    if "COURSE_LANGUAGE" in os.environ:
        return
    told = next(
        filter(None, (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), None
    )
    if told is None and sys.platform in ("win32", "darwin"):
        told = locale.getlocale()[0] or ""
        told = "zh" if told.startswith("Chinese") else told  # Windows' own name
    short = (told or "").partition("_")[0].partition(".")[0].lower()
    if short in languages():
        os.environ["COURSE_LANGUAGE"] = short


@lru_cache(8)
def _catalogue(language: str) -> gettext.NullTranslations:
    if language == "en":
        return gettext.NullTranslations()
    with (HERE / language / "messages.mo").open("rb") as file:
        return gettext.GNUTranslations(file)


def say(english: str, language: str = "") -> str:
    """Return a text in the chosen language, or another: for words that are keys as well, such as ``"measured"``."""
    if not english:
        return english
    catalogue = _catalogue(language or chosen())
    told = catalogue.pgettext("word", english)
    return catalogue.gettext(english) if told == english else told


def word(english: str) -> str:
    """Return the text. It marks a single word for the catalogue, which takes its place when compiled."""
    return english


def spoken(*english: str) -> Any:
    """Return the word, or the words, unchanged. It marks keys for the catalogue that `say` shows to readers."""
    return english if len(english) > 1 else english[0]


def punctuated(text: str) -> str:
    """Return a text that a program put together, with the language's own marks beside its own letters."""
    own = {mark: say(mark) for mark in spoken(", ", "; ", ": ", ". ", " (", ")")}
    beside = r"[^\W\d_\0-\u024f\u2070-\u209f]|[）”]"  # letters of another script than the Latin one
    if chosen() == "en":
        return text
    said = rf"[^()]*(?:{beside})[^()]*"
    bracket = rf" \(({said})\)|(?<={beside}) \(([^(),]+)\)"  # a tuple after a word is no remark
    text = re.sub(bracket, lambda found: own[" ("] + (found[1] or found[2]) + own[")"], text)
    marks = rf"(?<={beside})[,;:.] |(?<!\d)\. (?={beside})|[,;:] (?={beside})"
    text = re.sub(marks, lambda found: own[found[0]], text)
    text = re.sub(
        "[,;:] (?! )",
        lambda found: own[found[0]] if _in_a_sentence(found, beside) else found[0],
        text,
    )
    full = "".join(mark for mark in own.values() if " " not in mark)  # there are no spaces at all
    spaces = rf"(?<=[{full}]|{beside}) (?={beside})|(?<=[，。；：！？（“]) (?=[^ ])"
    return re.sub(spaces, "", text) if full else text


def _in_a_sentence(mark: re.Match[str], letter: str) -> bool:
    """Tell whether a mark's part of a sentence has such a letter, and the mark is in no code or quotation."""
    before = re.split(r"[\n<>，。；：！？（“]", mark.string[: mark.start()])[-1]
    after = re.split(r"[\n<>，。；：！？（“#]", mark.string[mark.end() :])[0]
    whole = all(before.count(left) == before.count(right) for left, right in ("()", "[]", "{}"))
    whole = whole and not any(before.count(sign) % 2 for sign in "\"'`")
    return whole and re.search(letter, before + after) is not None


def own_name(language: str) -> str:
    """Return what a language calls itself."""
    return say(spoken("English"), language)


def install() -> None:
    """From now on compile the course's modules in the chosen language."""
    if chosen() != "en" and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds the course's modules as Python does, and has them compiled with their texts replaced."""

    @staticmethod
    def find_spec(
        name: str, path: Any = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES and name not in AUTHORING:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        from course_language import texts

        path = self.get_filename(fullname)
        tree = ast.parse(self.get_data(path), path)
        catalogue = _catalogue(chosen())

        def look(text: str, context: str) -> str | None:
            other = catalogue.pgettext(context, text) if context else catalogue.gettext(text)
            return None if other == text else other

        tree = texts.translated(tree, look, **texts.rules(path))
        return compile(tree, path, "exec", dont_inherit=True)
