"""The handbook's index of errors, searched: from a message, or a part of one, to what it means."""

from __future__ import annotations

import builtins
import difflib
import math
import posixpath
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from course_language import chosen, languages, say, spoken

from .content import handbook

_ENTRY = (
    r"(?P<title>[^\n]+)\n\n```text\n(?P<forms>.+?)\n```\n\n(?P<meaning>.+?)\n\n"
    r"(?:```python (?P<where>[^\n]+)\n(?P<program>.+?)\n```\n\n)?"
    r"(?:(?P<source>{}[^\n]+)\n\n)?{}(?P<remedy>.+)\n\n(?P<lesson>[^\n]+)\n*"
)
_HEADS = spoken("Seen in: ", "**Remedy.** ")
_MEMORY = spoken("out of memory|OOM")  # the pages' word, and others for it
_WORDS = """a after an and are at attribute be but can code do does during error few for from get got have help how
i in is it my no not object of on or please so some steps that the this to torch train training was what when while
why with work due because epoch iteration errno"""
_PLAIN = {*_WORDS.split(), *(name.lower() for name in dir(builtins) if name.endswith("Error"))}
NOTHING = (
    "The handbook has no error like this. Try other words of the message, the rarer the better; "
    "handbook/errors.md lists all that it has."
)


@dataclass(frozen=True)
class Entry:
    """One error, as a page in ``handbook/errors/`` tells it; ``where`` is what its program needs."""

    page: str
    title: str
    forms: tuple[str, ...]
    meaning: str
    where: str
    program: str
    source: str
    remedy: str
    lesson: str


@cache
def entries(language: str = "en") -> tuple[Entry, ...]:
    """Read all pages, in the same order in each language; ValueError, with the title, for another form."""
    found, heads = [], (re.escape(say(head, language)) for head in _HEADS)
    form = re.compile(_ENTRY.format(*heads), re.DOTALL)
    home = handbook() / ("" if language == "en" else language) / "errors"
    for path in sorted(home.glob("*.md")):
        page = re.sub(r'<a id="[^"]*"></a>\n\n', "", path.read_text(encoding="utf-8"))
        for text in re.split(r"(?m)^## ", page)[1:]:
            match = form.fullmatch(text)
            if match is None:
                raise ValueError(f"{path.name}: not an entry's form: {text.splitlines()[0]}")
            fields = {name: value or "" for name, value in match.groupdict().items()}
            forms = tuple(fields.pop("forms").splitlines())
            found.append(Entry(path.stem, forms=forms, **fields))
    return tuple(found)


def _here(entry: Entry) -> Entry:
    """Return an entry in the chosen language, or as it is where that has none."""
    return dict(zip(entries(), entries(chosen()), strict=False)).get(entry, entry)


def _pairs(text: str) -> set[str]:
    """Return each two letters beyond the Latin ones, such as Chinese, that stand side by side."""
    return set(re.findall(r"(?=([^\W\d_\0-\u024f]{2}))", text))


def _find_pairs(text: str, language: str) -> list[Entry]:
    """Return the entries that share, in a language, the question's rarer pairs of letters, best first."""
    word, *others = say(_MEMORY, language).split("|")
    asked = _pairs(re.sub("|".join(map(re.escape, others)) or "$^", word, text))
    has = [_pairs(f"{e.title} {e.meaning} {e.remedy}") for e in entries(language)]
    tells = {p: math.log(max(1, len(has)) / max(1, sum(p in one for one in has))) for p in asked}
    told = [sum(tells[pair] for pair in asked & one) for one in has]
    ranked = sorted(zip(told, range(len(told)), entries(), strict=False), reverse=True)
    return [entry for share, _, entry in ranked if share >= 0.4 * sum(tells.values()) > 0]


def link(entry: Entry) -> str:
    """Return the entry's title, linked as from a page beside its own."""
    anchor = re.sub(r"[^\w -]", "", entry.title.lower()).replace(" ", "-")
    return f"[{entry.title}]({entry.page}.md#{anchor})"


def normal(text: str) -> str:
    """Return a message's words that do not vary: no capitals, quotes, addresses, small numbers."""
    text = re.sub(r"\x1b\[[0-9;]*m|0x[0-9a-f]+|(?<=\bcan)no(?=t\b)|['’]s\b|['’`]", "", text.lower())
    text = re.sub(r"\boom\b", "out of memory", re.sub(r"\btimed? out\b", "timeout", text))
    text = re.sub(r"\b(?:hangs|hanging|stuck|freezes)\b", "hang", text)
    text = re.sub(r"\b(?:amp|(?:mixed|half) precision|float16)\b", "fp16", text)
    text = text.replace("optimis", "optimiz").replace("scaler type", "scalar type")
    words = re.findall(r"(?<![a-z0-9])(?:[a-z][a-z0-9]*|[0-9]{3,}(?![.0-9]))", text)
    return " ".join("cuda" if w == "sim" else re.sub(r"(?<=[a-z]{3})s$", "", w) for w in words)


def says(form: str, said: str) -> bool:
    """Whether a normal text has a form's parts, those between its dots, in their order."""
    at, said = 0, f" {said} "
    for part in filter(None, map(normal, form.split("…"))):
        at = said.find(f" {part} ", at) + 1
        if not at:
            return False
        at += len(part)
    return True


@cache
def _words() -> tuple[dict[str, float], list[tuple[set[str], set[str]]]]:
    """How much each word tells, the rarer the more; of each entry its message's words, and all."""
    words = []
    for entry in entries():
        near = normal(" ".join([entry.title, *entry.forms])).split()
        words.append((set(near), {*near, *normal(f"{entry.meaning} {entry.remedy}").split()}))
    count = Counter(word for _, every in words for word in every)
    return {word: math.log(1 + len(words) / times) for word, times in count.items()}, words


def find(text: str, most: int = 3) -> list[Entry]:
    """Return the entries nearest to a message, a traceback or some words, best first, or none.

    First come entries whose message is in the text, then those whose message has the text in it,
    then those that share its rare words; typing errors are allowed for.
    """
    if _pairs(text) and not normal(text):
        return [entry for other in languages()[1:] for entry in _find_pairs(text, other)][:most]
    tells, words = _words()
    start = r"(?m)^(?:\[rank\d+\]: ?)?[\w.]+(?:Error|Exception|Warning)\b"
    last = [match.start() for match in re.finditer(start, text)][-1:]
    asked, said = normal(text[last[0] if last else 0 :]).split()[:60], normal(text)
    query, ranked = {}, []
    for word in {word for word in asked if not {word, f"{word}s"} & _PLAIN}:
        if word not in tells and not word.isdigit():
            word = next(iter(difflib.get_close_matches(word, tells, 1, 0.82)), word)
        if word in tells or not word.isdigit():  # an unknown number is only this time's
            query[word] = tells.get(word, math.log(1 + len(words)))
    alone = {normal(line) for line in text.splitlines()}  # "Killed" is a message only on its own
    total = sum(query.values())
    enough = max(2.5, 0.4 * total, min(10, 0.6 * total))  # what a near entry shares, at least
    for entry, (near, every) in zip(entries(), words, strict=True):
        shared = sum(tell * (word in near) + tell * (word in every) for word, tell in query.items())
        heard = [normal(form) for form in entry.forms if says(form, said)]
        whole = max((len(form) for form in heard if " " in form or form in alone), default=0)
        part = any(f" {' '.join(asked)} " in f" {normal(form)} " for form in entry.forms)
        if whole or (part and len(asked) > 2) or shared / 2 >= enough:
            ranked.append((whole, part, shared, -min(map(len, entry.forms)), entry))
    ranked.sort(key=lambda rank: rank[:4], reverse=True)
    return [entry for *_, entry in ranked[:most]]


def told(found: list[Entry], made: Callable[[str, str], str]) -> str:
    """Return the first entry and the others' names; ``made`` makes a link of a name and a path."""
    first, *others = map(_here, found)
    text = f"{link(first)}\n\n    {first.forms[0]}\n\n{first.meaning}\n\n"
    text += f"**Remedy.** {first.remedy}\n\n{first.lesson}"
    text += f"\n\nNear it, too: {', '.join(map(link, others))}" if others else ""
    pages = "handbook/errors" if chosen() == "en" else f"handbook/{chosen()}/errors"

    def turned(match: re.Match[str]) -> str:
        here = posixpath.normpath(f"{pages}/{match[2]}")
        return made(match[1], match[2] if "://" in match[2] else here)

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", turned, text)


def _in_notebook(name: str, path: str) -> str:
    """A link to the lesson beside this notebook, else into the course's repository."""
    from .course import load_course

    beside = posixpath.basename(path)
    if "://" not in path:
        path = beside if Path(beside).is_file() else load_course().page(path)
    return f"[{name}]({path})"


def in_terminal(name: str, path: str) -> str:
    """A link that can be read."""
    return f"{name} ({path})"


def explain(error: BaseException | str | None = None) -> None:
    """Say what an error means, what to do, and which lesson builds it.

    Give an error, its message or some words of that; without it this takes the session's last error,
    also one that was raised on purpose, or by your answer in a check.
    """
    from IPython.display import Markdown, display

    from .this_machine import in_notebook

    error = getattr(sys, "last_value", None) if error is None else error
    text = "Nothing has failed in this session yet. After an error, explain() says what it means."
    if error is not None:
        said = error if isinstance(error, str) else "".join(traceback.format_exception(error))
        found = find(said)
        text = told(found, _in_notebook if in_notebook() else in_terminal) if found else NOTHING
    display(Markdown(text)) if in_notebook() else print(text)
