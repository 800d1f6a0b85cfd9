"""Automatic checks of a translated text against the English."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

_HAN = r"[\u4e00-\u9fff]"
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_ADDRESS = re.compile(r"\]\(([^)\s]*)[^)]*\)|(?:src|href)=\"([^\"]*)\"|(https?://[^\s)\"'，。；]+)")
_NUMBER = re.compile(r"(?<![\w.#])\d+(?:[.,]\d+)*")
# Large numbers and months, which the languages write differently.
_LARGE = re.compile(r"\d[\d.,]*[ -]?(?:million|billion|thousand|百万|万|亿|千|月)")
_BREAK = re.compile(r"<br>|</?(?:details|summary)>")
_HTML = re.compile(r"</?[a-zA-Z][^<>]*>")
_VALUE = re.compile(r"\{\w*(?:![rsa])?(?::[^{}]*)?\}")
_PLURAL = re.compile(r"(?<=[a-z}])\{\w+\}")
_MARKS = [
    (re.compile(pattern), message)
    for pattern, message in (
        (
            rf"{_HAN}[A-Za-z0-9`]|[A-Za-z0-9`%]{_HAN}",
            "a space is missing between Chinese and Latin letters, digits or code",
        ),
        (rf"{_HAN}[,;:?!]|{_HAN}\.(?!\w)|[,;:?!]{_HAN}", "punctuation is not full-width"),
        (rf"{_HAN}\s*\(|\)\s*{_HAN}|\([^()]*{_HAN}[^()]*\)", "parentheses are not full-width"),
        (rf"\"[^\"\n]*{_HAN}[^\"\n]*\"|{_HAN}'", "quotation marks are not “ ”"),
        (
            rf"{_HAN}\*+\[[^\]]*\]\*|\]\*+{_HAN}",
            "Markdown sees no emphasis here: put it inside the brackets",
        ),
        (r" [，。；：！？）”]|[，。；：！？（“] ", "a space stands beside full-width punctuation"),
    )
]


def _code(text: str) -> str:
    """Return code for comparison: a block without comments, which are translated; inline code on one line."""
    if not text.startswith("```"):
        return " ".join(text.split())
    return re.sub(r"\s*(?<!\S)#.*$", "", text, flags=re.MULTILINE)


def _bare(text: str) -> str:
    """Return a text with each piece of code replaced by a backtick, without addresses and HTML."""
    return _HTML.sub("", _BREAK.sub("\n", _ADDRESS.sub("]", _CODE.sub("`", text))))


_SAME: dict[str, Callable[[str], Counter]] = {
    "values": lambda text: Counter(_VALUE.findall(text.replace("{{", "").replace("}}", ""))),
    "code": lambda text: Counter(map(_code, _CODE.findall(text))),
    "links": lambda text: Counter(next(filter(None, got), "") for got in _ADDRESS.findall(text)),
    "tags": lambda text: Counter(re.sub(r'(alt|title)="[^"]*"', r"\1", tag) for tag in _HTML.findall(text)),
    "numbers": lambda text: Counter(_NUMBER.findall(_VALUE.sub("", _bare(text)))),
}


@cache
def terms(path: Path) -> tuple[tuple[str, str, str], ...]:
    """Return a language's terminology as tuples: English term, its translation, a word to avoid."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        next(rows)
        return tuple((row[0], row[1], row[2]) for row in rows)


def problems(english: str, other: str, base: Path | None = None) -> list[str]:
    """Return what is wrong with a text's translation, one sentence each.

    Compared are placeholders, code, links, tags, numbers, spaces, emphasis and punctuation; ``base`` is the
    path of the language's terminology.
    """
    if not other.strip():
        return ["it is missing"]
    if other == english:
        return []  # a name, or a program
    found = []
    for what, parts in _SAME.items():
        wanted, got = parts(english), parts(other)
        lost, new = wanted - got, got - wanted
        if what == "values":
            lost -= Counter(_PLURAL.findall(english))  # plural s or ordinal th, which Chinese lacks
        if what == "numbers" and (lost or new):
            wanted, got = (parts(_LARGE.sub("", text)) for text in (english, other))
            lost, new = wanted - got, got - wanted
        if lost or new:
            shown = [", ".join(map(repr, one.elements())) or "nothing" for one in (lost, new)]
            found.append(f"other {what}: {shown[0]} became {shown[1]}")
    for edge in (r"\A\s*", r"\s*\Z"):
        was, now = (re.search(edge, text).group() for text in (english, other))
        full = other[0 if "A" in edge else -1] in "，。；：！？（）、“”"  # includes a space
        if was != now and not (full and now == "" and "\n" not in was):
            found.append(f"it begins or ends with other spaces: {was!r} became {now!r}")
    if english.count("**") != other.count("**"):
        found.append("it has not as many ** as the English")
    bare = _bare(other)
    for pattern, message in _MARKS:
        if got := pattern.search(bare):
            found.append(f"{message}: {got.group()!r}")
    for name, word, never in terms(base) if base else ():
        if never and never in other and re.search(rf"\b{re.escape(name)}", english, re.I):
            found.append(f"{name!r} is {word}, not {never}")
    return found
