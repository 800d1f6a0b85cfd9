"""Extracts comments and texts from a cell's code, and replaces them.

It needs Python 3.12 or later, where ast gives correct positions inside f-strings.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Callable, Collection, Iterable, Iterator
from unicodedata import east_asian_width

from tools.authoring.translation import cell_texts as texts

_MAGIC = re.compile(r"^(\s*)([%!])(.*)$", re.M)
_DIRECTIVE = re.compile(r"#\s*(noqa|type:|fmt:|ruff:|!)")
WIDTH = 96


def without_magics(source: str) -> str:
    """Return the source with IPython magics turned into comments of the same length, for Python to parse."""
    return _MAGIC.sub(lambda line: f"{line[1]}0#{line[3][1:]}" if line[1] else f"#{line[3]}", source)


def _line_starts(source: str) -> list[int]:
    """Return the offset of each line's first character."""
    lengths = (len(line) + 1 for line in source.split("\n"))
    return list(itertools.accumulate(lengths, initial=0))


def _width(text: str) -> int:
    """Return the columns that a text takes; wide East Asian characters take two."""
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text)


def _comments(source: str, magics: set[int]) -> list[tuple[int, int, str, str]]:
    """Return each comment's start, end, indentation (None after code) and text, as offsets into the source.

    Comments on consecutive lines are joined; directives such as ``noqa`` and lines in ``magics`` are left
    out.
    """
    starts = _line_starts(source)
    found: list[tuple[int, int, str | None, str]] = []
    last = (-1, -1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or _DIRECTIVE.match(token.string):
            continue
        if token.start[0] in magics:
            continue
        row, column = token.start
        begin = starts[row - 1] + column
        before = source[starts[row - 1] : begin]
        alone = not before.strip()
        words = token.string.lstrip("#").strip()
        if alone and last == (row - 1, column) and found[-1][2] is not None:
            begin, _, indent, old = found.pop()
            found.append((begin, starts[row - 1] + column + len(token.string), indent, f"{old} {words}"))
        else:
            found.append((begin, begin + len(token.string), before if alone else None, words))
        last = (row, column) if alone else (-1, -1)
    return found


def _literal(old: str, text: str, values: dict[str, str] | None) -> str:
    """Return the source of a string literal with another text, in the quotes and prefix of ``old``.

    ``values`` are the source texts of an f-string's fields, by name; None for a plain string.
    """
    prefix, quote = re.match(r"([A-Za-z]*)('''|\"\"\"|'|\")", old).groups()
    if values is None:
        prefix = prefix.replace("f", "").replace("F", "")
        parts = [text]
    else:
        prefix = "f"
        parts = re.split(r"(\{\w+\})", text.replace("{{", "\0").replace("}}", "\1"))
    raw = "r" in prefix.lower()
    written = ""
    for part in parts:
        if values is not None and re.fullmatch(r"\{\w+\}", part):
            written += values[part[1:-1]]
            continue
        part = part.replace("\0", "{{").replace("\1", "}}")
        if not raw:
            part = part.replace("\\", "\\\\")
        part = part.replace(quote, "\\" + quote) if len(quote) == 1 else part
        written += part if len(quote) == 3 else part.replace("\n", "\\n").replace("\t", "\\t")
    return prefix + quote + written + quote


def keys(sources: Iterable[str]) -> frozenset[str]:
    """Return the labels of all cells of a notebook: see `cell_texts.keys`."""
    return frozenset().union(*(texts.keys(ast.parse(without_magics(source))) for source in sources))


def rewrite(source: str, change: Callable[[str], str], keys: Collection[str] = ()) -> str:
    """Return a cell's code with each comment and text replaced by what ``change`` returns for it.

    Parameters
    ----------
    keys
        The notebook's labels (see `keys`), which have one translation in all of its cells.

    Raises
    ------
    SyntaxError
        If the cell is not Python (magics are allowed).
    """
    bare = without_magics(source)
    lines, starts = bare.split("\n"), _line_starts(bare)

    def place(row: int, column: int) -> int:
        """Return the offset of a line and a UTF-8 column, as ast gives them."""
        return starts[row - 1] + len(lines[row - 1].encode()[:column].decode())

    def span(node: ast.AST) -> tuple[int, int]:
        """Return the offsets of a node's start and end."""
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    tree = ast.parse(bare)
    spans = {span(node): node for node in texts.find(tree, keys)}

    def render(begin: int, end: int) -> str:
        """Return the source between two offsets with all texts in it replaced."""
        out, at = "", begin
        for (first, last), node in sorted(spans.items(), key=lambda item: (item[0][0], -item[0][1])):
            if first < at or last > end or (first, last) == (begin, end):
                continue
            out += source[at:first] + string(first, last, node)
            at = last
        return out + source[at:end]

    def string(first: int, last: int, node: ast.expr) -> str:
        """Return the source of a string node with its text replaced."""
        text, parts = texts.message(node)
        other = change(text)
        if other == text and not any(first < b and e < last for b, e in spans):
            return source[first:last]
        values = None
        if isinstance(node, ast.JoinedStr):
            values = dict(zip(texts.fields(text), (render(*span(part)) for part in parts), strict=True))
        return _literal(source[first:last], other, values)

    edits = [(b, e, string(b, e, node)) for (b, e), node in spans.items()]
    for node in programs(tree):
        b, e = (edge + 3 * side for edge, side in zip(span(node), (1, -1), strict=True))
        edits += [(b, e, rewrite(source[b:e], change))] if source[b:e] == node.value else []
    edits = [
        (b, e, new)
        for b, e, new in edits
        if not any(b2 <= b and e <= e2 and (b, e) != (b2, e2) for b2, e2, _ in edits)
    ]
    return _apply_edits(source, [*edits, *_comment_edits(source, change)])


def programs(tree: ast.AST) -> list[ast.Constant]:
    """Return the string nodes of a cell that contain a program of several lines, such as a script."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    written = (node for node in nodes if isinstance(node.value, str) and "\n\n" in node.value)
    return [node for node in written if texts.is_program(node.value)]


def rewrite_comments(source: str, change: Callable[[str], str]) -> str:
    """Return a program with each comment replaced by what ``change`` returns for it."""
    return _apply_edits(source, _comment_edits(source, change))


def _comment_edits(source: str, change: Callable[[str], str]) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and new source of each comment that ``change`` alters."""
    magics = {n for n, line in enumerate(source.split("\n"), 1) if _MAGIC.match(line)}
    for begin, end, indent, words in _comments(without_magics(source), magics):
        if re.search("[A-Za-z]{2}", words) and (other := change(words)) != words:
            lines = source[begin:end].split("\n")
            widest = max(map(_width, lines)) if len(lines) > 1 else WIDTH
            yield begin, end, f"# {other}" if indent is None else _wrap_comment(other, indent, widest)


def _apply_edits(source: str, edits: Iterable[tuple[int, int, str]]) -> str:
    """Return the source with the text between each start and end replaced; the spans must not overlap."""
    for begin, end, new in sorted(edits, reverse=True):
        source = source[:begin] + new + source[end:]
    return source


def _wrap_comment(words: str, indent: str, widest: int) -> str:
    """Return a text as comment lines of at most ``widest`` columns."""
    lines, line = [], ""
    for part in re.findall(r"[\x21-\x7e]+|[ ]+|.", words):
        if line and _width(indent + "# " + line + part) > widest and part not in "，。；：！？）、”":
            lines.append(line.rstrip())
            line = ""
        line += part if line or part.strip() else ""
    return f"\n{indent}".join(f"# {line}" for line in [*lines, line.rstrip()] if line)


def pieces(source: str, keys: Collection[str] = ()) -> list[str]:
    """Return the comments and texts of a cell, in no particular order."""
    found: list[str] = []
    rewrite(source, lambda piece: found.append(piece) or piece, keys)
    return found
