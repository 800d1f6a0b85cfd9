"""Read gettext's catalogues (``.po``) and compile them (``.mo``), with Python alone.

A clone has no compiled catalogue that could be older than its source; the wheel's build makes one
(``hatch_build.py``).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

MAGIC = 0x950412DE


def messages(path: Path) -> dict[str, str]:
    """Return the finished translations of a ``.po`` file by their ids, plural forms with NUL between them."""
    translations = {}
    for entry in path.read_text(encoding="utf-8").split("\n\n"):
        lines = entry.splitlines()
        if any(line.startswith("#,") and "fuzzy" in line for line in lines):
            continue
        ids, strings = _strings(lines)
        if strings and all(strings):
            translations["\0".join(ids)] = "\0".join(strings)
    return translations


def _strings(lines: list[str]) -> tuple[list[str], list[str]]:
    """Return an entry's ids (the singular, the plural) and its translations, one for each form."""
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


def compiled(folder: Path) -> bytes:
    """Return the ``.mo`` of what a language's programs say: of ``course.po`` and ``packages/``."""
    translations: dict[str, str] = {}
    for path in (*folder.glob("course.po"), *sorted(folder.glob("packages/*.po"))):
        translations |= messages(path)
    return b"".join(_mo(translations))


def _mo(translations: dict[str, str]) -> Iterator[bytes]:
    """Yield the parts of a ``.mo``: its head, where each id and each string stands, and these."""
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
