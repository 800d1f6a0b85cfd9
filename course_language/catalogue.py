"""Parse gettext's catalogues (``.po``) and compile them (``.mo``), with the standard library alone.

A clone has no ``.mo`` that could be out of date: it is compiled in memory. The wheel has one, which
``hatch_build.py`` writes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

MAGIC = 0x950412DE


def messages(path: Path) -> dict[str, str]:
    """Return a ``.po`` file's translations by msgid, without fuzzy and empty ones; NUL joins plural forms.

    The catalogue's header is under "". Blank lines must separate the entries. Raises as `_ids_and_strings`.
    """
    translations = {}
    for entry in path.read_text(encoding="utf-8").split("\n\n"):
        lines = entry.splitlines()
        if any(line.startswith("#,") and "fuzzy" in line for line in lines):
            continue
        ids, strings = _ids_and_strings(lines)
        if strings and all(strings):
            translations["\0".join(ids)] = "\0".join(strings)
    return translations


def _ids_and_strings(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return the msgids (singular and plural) and the translations (one for each plural form) of an entry.

    ``lines`` are those of one entry. Strings are unescaped, comments ignored. A msgctxt would count as a
    translation, so catalogues may have none. ValueError for a malformed string.
    """
    ids: list[str] = []
    strings: list[str] = []
    for line in lines:
        keyword, quote, rest = line.partition('"')
        if line.startswith("#") or not quote:
            continue
        if keyword:
            target = ids if keyword.startswith("msgid") else strings
            target.append("")
        target[-1] += json.loads(quote + rest)  # the escapes are the same
    return ids, strings


def compile_mo(folder: Path) -> bytes:
    """Return the ``.mo`` file's content for a language's folder: for course.po and ``packages/*.po``.

    Where two have the same msgid, the last file's translation counts.
    """
    translations: dict[str, str] = {}
    for path in (*folder.glob("course.po"), *sorted(folder.glob("packages/*.po"))):
        translations |= messages(path)
    return b"".join(_mo_parts(translations))


def _mo_parts(translations: dict[str, str]) -> Iterator[bytes]:
    """Yield the parts of a ``.mo`` file: the header, the tables of lengths and offsets, and the strings."""
    pairs = sorted((key.encode(), value.encode()) for key, value in translations.items())
    columns = list(zip(*pairs, strict=True))
    size = 8 * len(pairs)
    yield struct.pack("<7I", MAGIC, 0, len(pairs), 28, 28 + size, 0, 28 + 2 * size)
    offset = 28 + 2 * size
    for column in columns:
        for text in column:
            yield struct.pack("<2I", len(text), offset)
            offset += len(text) + 1
    for column in columns:
        for text in column:
            yield text + b"\0"
