"""Splits Markdown into the pieces that are translated, and replaces them.

A piece is a heading, a paragraph, an item of a list, a row of a table or a comment of a Python program.
Other code, formulas, mere markup and pieces without words stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tools.authoring.translation import code

_FENCE = re.compile(r"\s*(```|~~~|\$\$)")
_ITEM = re.compile(r"(\s*(?:[-*+]|\d+[.)])\s+(?:\[[ x]\]\s+)?|\s*>\s?|#{1,6}\s+)(.*)", re.DOTALL)
_WORDS = re.compile(r"[A-Za-z]{2,}")
_NOT_WORDS = re.compile(
    r"```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->|<[^<>]*>|https?://\S+|\$[^$]*\$", re.DOTALL
)
_BADGE = re.compile(r" ?\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)")
_ALT = re.compile(r"\b(?:alt|title)=\"([^\"]*)\"")


def has_words(text: str) -> bool:
    """Return whether a piece has words outside code, URLs, formulas and markup; alternative texts count."""
    return any(map(_WORDS.search, [_NOT_WORDS.sub(" ", text), *_ALT.findall(text)]))


def rewrite(markdown: str, change: Callable[[str], str], leave: frozenset[str] = frozenset()) -> str:
    """Return Markdown with each piece that has words replaced by what ``change`` returns for it.

    ``leave`` names generated parts (``<!-- NAME:begin -->`` to ``<!-- NAME:end -->``) that stay unchanged.
    """
    done: list[str] = []
    held: list[str] = []

    def finish() -> None:
        """Append the collected lines as one piece, changed."""
        if held:
            first, rest = held[0], held[1:]
            lead, text = _ITEM.fullmatch(first).groups() if _ITEM.fullmatch(first) else ("", first)
            lead = lead or re.match(r"\s*", text).group()
            whole = "\n".join([text.strip(), *(line.strip() for line in rest)])
            whole = re.sub(r"(?<![\\])\n", " ", whole) if "<br" not in whole else whole
            badges = "".join(_BADGE.findall(whole))  # present only if the course has a repository
            bare = _BADGE.sub("", whole)
            done.append(lead + (change(bare) + badges if has_words(bare) else whole))
            held.clear()

    fenced, left, begun = "", "", None
    for line in markdown.split("\n"):
        if left or (named := re.match(r"<!-- ([\w-]+):begin -->", line)):
            finish()
            left = left or (named[1] if named[1] in leave else "")
            left = "" if line == f"<!-- {left}:end -->" else left
            done.append(line)
        elif fenced or (fence := _FENCE.match(line)):
            finish()
            if not fenced:
                fenced = fence[1] if line.count(fence[1]) == 1 else ""
                begun = len(done) + 1 if line.startswith("```python") else None
            elif line.strip().startswith(fenced) or (fenced == "$$" and line.rstrip().endswith("$$")):
                fenced = ""
                if begun is not None:
                    done[begun:] = code.rewrite_comments("\n".join(done[begun:]), change).split("\n")
            done.append(line)
        elif not line.strip() or re.fullmatch(r"\s*(\|?[-:| ]+\||---+|<!--.*-->)\s*", line):
            finish()
            done.append(line)
        elif line.lstrip().startswith(("|", "<")) or (re.match(r"\s{4,}\S", line) and not held):
            finish()
            if line.lstrip().startswith(("|", "<")):
                held.append(line)
                finish()
            else:
                done.append(line)
        elif _ITEM.fullmatch(line):
            finish()
            held.append(line)
            if line.startswith("#"):
                finish()
        else:
            held.append(line)
    finish()
    return "\n".join(done)


def pieces(markdown: str, leave: frozenset[str] = frozenset()) -> list[str]:
    """Return the pieces of Markdown that have words, in order; parts named in ``leave`` are left out."""
    found: list[str] = []
    rewrite(markdown, lambda piece: found.append(piece) or piece, leave)
    return found
