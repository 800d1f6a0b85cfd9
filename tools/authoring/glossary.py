"""The glossary ``handbook/glossary.md``, and the links to it that ``notebooks --fix`` writes into lessons."""

from __future__ import annotations

import copy
import functools
import re
from dataclasses import dataclass

from nbformat import NotebookNode

from course_utils.course import Course, Lesson
from tools.authoring.form import tags

PAGE = "handbook/glossary.md"
LINKED, IN_A_CELL = 12, 2
"""Links in a lesson, and in one cell of it, at most."""
PLAIN = """
accumulation allocated backend context device driver emulation event float32 generator head host
in_place launch meta modelled modelled_time moments overhead pipeline race reserved scheduler sim stage
store trace view warm-up wheel worker
"""
"""Names that are also plain words, or that a reader knows: no use of them is linked."""

_ENTRY = re.compile(
    r'^<a id="([\w-]+)"></a>\n\*\*(.+?)\*\*(?:\s\(also:\s(.+?)\))?:\s(.+?)\s'
    r"(In\sdocumentation;\snearest:\s)?\[(\d\d)\]\(\.\./notebooks/[\w.]+\)$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(rf"\[([^\]]*)\]\([^)\s]*{re.escape(PAGE)}#[\w-]+\)")
_NO_PROSE = re.compile(
    r"^ {0,3}(?:```|~~~).*?^ {0,3}(?:```|~~~)[ \t]*$"  # a fenced block
    r"|^(?:#|\||[ ]{4})[^\n]*|^<[^\n]*(?:\n[^\n]+)*"  # a heading, a row, indented code; a block of HTML
    r"|<code>.*?</code>|<[^>]+>|(`+)(?!`).+?(?<!`)\1(?!`)"
    r"|!?\[[^\]]*\]\([^)]*\)|\$[^$\n]+\$",  # a link, a formula
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Entry:
    """A term, whose names begin with its own; ``used`` is False where it is documentation's alone."""

    anchor: str
    names: tuple[str, ...]
    text: str
    lesson: str
    used: bool


def entries(page: str) -> list[Entry]:
    """Return the entries of the glossary's text."""
    return [
        Entry(anchor, _names(f"{name},{also}"), " ".join(text.split()), lesson, not elsewhere)
        for anchor, name, also, text, elsewhere, lesson in _ENTRY.findall(page)
    ]


@functools.cache
def pattern(name: str) -> re.Pattern[str]:
    """Return what finds a name: also its plural, and with ``_`` or ``-`` for a space.

    Case counts in a name that has capitals inside, such as ZeRO.
    """
    words = r"[\s_-]".join(re.escape(word) for word in re.split(r"[\s_-]", name))
    case = 0 if any(c.isupper() for c in name[1:]) else re.IGNORECASE
    return re.compile(rf"(?<![\w-]){words}(?:e?s)?(?![\w-])", case)


def without_links(markdown: str) -> str:
    """Return Markdown without its links to the glossary."""
    return _LINK.sub(r"\1", markdown)


def first_uses(
    nb: NotebookNode, lesson: Lesson, known: list[Entry]
) -> list[tuple[int, int, int, Entry]]:
    """Choose what a lesson links: (cell, begin, end, entry) of each first use in prose.

    Not what the lesson builds itself, nor `PLAIN` words. Terms of later lessons come first, then those
    of earlier ones, the latest lesson first; of one group, what stands in more cells. It ends
    when `LINKED` are found; a cell takes `IN_A_CELL` of them. ``nb`` has no links to the glossary.
    """
    plain = {word.replace("_", " ") for word in PLAIN.split()}
    names = [(name, entry) for entry in known for name in entry.names if name not in plain]
    names.sort(key=lambda pair: -len(pair[0]))  # the longest first, so that no part of it is taken
    firsts = [re.split(r"[\s_-]", name)[0].lower() for name, _ in names]
    found: dict[Entry, list[tuple[int, int, int]]] = {}
    for i, cell in enumerate(nb.cells):
        text = _blank(_NO_PROSE, cell.source) if _is_prose(cell) else ""
        small = text.lower()
        for first, (name, entry) in zip(firsts, names, strict=True):
            if first in small:  # quick; the pattern is not
                for match in pattern(name).finditer(text):
                    found.setdefault(entry, []).append((i, *match.span()))
                text = _blank(pattern(name), text)

    def need(entry: Entry) -> tuple:
        lessons = 99 if entry.lesson > lesson.id else int(entry.lesson)
        return -lessons, -len({i for i, *_ in found[entry]}), min(found[entry])

    chosen: list[tuple[int, int, int, Entry]] = []
    for entry in sorted((e for e in found if e.used and e.lesson != lesson.id), key=need):
        first = min(found[entry])
        if len(chosen) < LINKED and sum(i == first[0] for i, *_ in chosen) < IN_A_CELL:
            chosen.append((*first, entry))
    return sorted(chosen, key=lambda use: use[:3])


def linked(nb: NotebookNode, course: Course, lesson: Lesson) -> NotebookNode:
    """Return a copy with the lesson's links to the glossary, and no others."""
    page = course.path.parent.parent / PAGE
    nb = copy.deepcopy(nb)
    for cell in nb.cells:
        if _is_prose(cell):
            cell.source = without_links(cell.source)
    known = entries(page.read_text(encoding="utf-8")) if page.exists() else []
    online = course.page(PAGE)
    for i, begin, end, entry in reversed(first_uses(nb, lesson, known)):
        text = nb.cells[i].source
        link = f"[{text[begin:end]}]({online}#{entry.anchor})"
        nb.cells[i].source = text[:begin] + link + text[end:]
    return nb


def _is_prose(cell: NotebookNode) -> bool:
    return cell.cell_type == "markdown" and "generated" not in tags(cell)


def _blank(what: re.Pattern[str], text: str) -> str:
    return what.sub(lambda match: " " * len(match[0]), text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(" ".join(n.split()) for n in text.replace("`", "").split(",") if n.strip())
