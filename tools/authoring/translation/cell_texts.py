"""Finds the strings of a notebook's cell that are texts for a reader: of two words or more, labels, own keys.

A cell is plain Python without `_()`, for the learner's sake. Elsewhere texts are marked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator


def _words(text: str) -> frozenset[str]:
    """Return the words of a string as a set."""
    return frozenset(text.split())


# Functions and arguments whose strings are texts even if they are single words.
_LABELLING = _words(
    "annotate axhline axvline bar barh card curves hist legend measure plot print set_title set_xlabel "
    "set_ylabel show_table table text title try_out xlabel ylabel"
)
_LABELS = _words("desc label title unit xlabel ylabel head")
# Functions and arguments whose strings are never texts.
_NOT_READ = _words("Path compile device eval exec findall get getattr glob match open rglob search split sub")
_VALUES = _words("choices encoding family mode style")
_NAMES = _words("None True False cpu cuda data log measured modelled mps off published recorded sim x xpu y")
_WORD = re.compile(r"(?<![\w<&/#.-])(?:[A-Za-z]['A-Za-z]+|[Aa](?= ))")
_CODE = re.compile(
    r"""\w=["'\w]|\w\([\w"'(\[]|\w\[["'\w:]|\) [*/+-] |^\s*[\w.]+ [-+*/]?= |"""
    r"""\bin \w+\[|\bfor \w+ in (\(|\w+\.)"""
)
_STATEMENT = re.compile(r"^\s*(def|import|from|class|for|with|if) .*[:=]$", re.MULTILINE)


def message(node: ast.AST) -> tuple[str, list[ast.FormattedValue]] | None:
    """Return a string literal's text and its interpolated values, or None if the node is no string.

    Each value of an f-string is ``{name}`` in the text, or ``{0}``, ``{1}`` … if it is not a plain name.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, []
    if not isinstance(node, ast.JoinedStr):
        return None
    text, values = "", []
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += part.value.replace("{", "{{").replace("}", "}}")
        elif isinstance(part, ast.FormattedValue):
            name = part.value.id if isinstance(part.value, ast.Name) else str(len(values))
            name = str(len(values)) if "{" + name + "}" in text else name
            text += "{" + name + "}"
            values.append(part)
    return text, values


def fields(text: str) -> list[str]:
    """Return the names of the ``{…}`` fields in a text, in order."""
    return re.findall(r"\{(\w+)\}", re.sub(r"\{\{|\}\}", "", text))


def is_program(text: str) -> bool:
    """Return whether a string is Python code, rather than words that happen to parse."""
    try:
        tree = ast.parse(text.strip())
    except (SyntaxError, ValueError):
        return False
    first = tree.body[0] if len(tree.body) == 1 else None
    operators = getattr(getattr(first, "value", None), "ops", [None])
    return bool(tree.body) and not (
        isinstance(first, ast.AnnAssign) or isinstance(operators[0], (ast.In, ast.Is))
    )


def reads_as_text(text: str, label: bool = False) -> bool:
    """Return whether a string is prose for a reader; with ``label``, a single word may be."""
    bare = re.sub(r"<[^<>]*>|`[^`]*`|\]\([^)]*\)|https?://\S+|\$[^$]*\$", " ", text)
    words = _WORD.findall(re.sub(r"\{[^{}]*\}", " ", bare))
    if len(words) < 9 and not text.endswith(".") and "`" not in text and _CODE.search(text):
        return False
    if label:
        is_name = re.fullmatch(r"[\w.]*[_.:/%][\w.%]*(?<!:)", text) or set(text.split()) <= _NAMES
        return bool(words) and not is_name
    beside_value = bool(re.search(r"\{\w+\}\W* [A-Za-z]{2,}|[A-Za-z]{2,}\W* \W*\{\w+\}", text))
    if len(words) + beside_value < 2 or " " not in text.strip():
        return False
    if len(words) <= 12 and _STATEMENT.search(text) and "<" not in text:
        return False
    return not is_program(text)


def keys(tree: ast.AST) -> set[str]:
    """Return the strings that a cell shows as labels: dict keys, assigned subscripts and ``choices``."""
    found: set[str] = set()
    for node in ast.walk(tree):
        shown: list[ast.expr | None] = []
        if isinstance(node, ast.Dict):
            shown = node.keys
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            shown = [node.slice]
        elif isinstance(node, ast.keyword) and node.arg == "choices":
            shown = node.value.keys if isinstance(node.value, ast.Dict) else getattr(node.value, "elts", [])
            found |= {part.value for part in shown if str(getattr(part, "value", "")).isalpha()}
        words = (part.value for part in shown if isinstance(part, ast.Constant))
        found |= {text for text in words if isinstance(text, str) and reads_as_text(text, True)}
    return found


def find(tree: ast.AST, own_keys: Collection[str] = ()) -> list[ast.expr]:
    """Return the string nodes of a cell that are texts for a reader.

    Strings in ``own_keys`` count as texts wherever they occur.
    """
    texts = list(_find(tree, compared(tree), label=False))
    parts = {id(part) for node in texts for part in [node, *getattr(node, "values", ())]}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= set(map(id, node.values))
        elif isinstance(node, ast.Constant) and id(node) not in parts and node.value in own_keys:
            texts.append(node)
    return texts


def compared(tree: ast.AST) -> set[str]:
    """Return the strings that a program compares or looks up; these are never texts."""
    return {text for node in ast.walk(tree) for text in _names(node)}


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the strings that one node compares or looks up."""
    parts: list[ast.AST | None] = []
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
    elif isinstance(node, ast.Dict):
        parts = node.keys
    elif isinstance(node, ast.Subscript):
        parts = [node.slice]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _NOT_READ:
        parts = node.args
    for inner in (inner for part in parts if part is not None for inner in ast.walk(part)):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def _find(node: ast.AST, names: set[str], label: bool) -> Iterator[ast.expr]:
    """Yield the text nodes below a node; ``names`` are never texts, with ``label`` a single word is one."""
    if (found := message(node)) is not None:
        text, values = found
        for value in values:  # words in a conditional expression are shown
            yield from _find(value.value, names, isinstance(value.value, (ast.IfExp, ast.BoolOp)))
        if text not in names and reads_as_text(text, label):
            yield node
        return
    if isinstance(node, ast.Call):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        for part in [node.func, *node.args] if name not in _NOT_READ else ():
            yield from _find(part, names, part is not node.func and (label or name in _LABELLING))
        for keyword in node.keywords:
            if keyword.arg == "choices" and isinstance(keyword.value, ast.Dict):
                yield from _find(keyword.value, names, label=True)  # what is told about each wrong choice
            elif keyword.arg not in _VALUES:
                yield from _find(keyword.value, names, keyword.arg in _LABELS)
        return
    if isinstance(node, (ast.Compare, ast.Subscript)):
        return
    skipped = ("annotation", "returns", "decorator_list")
    if isinstance(node, ast.Dict):  # a label that a cell makes is a text, another key is not
        parts = [*node.values, *(key for key in node.keys if isinstance(key, ast.JoinedStr))]
    else:
        parts = [
            part
            for name, value in ast.iter_fields(node)
            if name not in skipped
            for part in (value if isinstance(value, list) else [value])
            if isinstance(part, ast.AST)
        ]
    if isinstance(node, ast.IfExp):
        label = label or all(map(message, (node.body, node.orelse)))
    elif isinstance(node, ast.Assign):
        label = getattr(node.targets[0], "id", "") in _LABELS
    elif not isinstance(node, (ast.BoolOp, ast.BinOp, ast.List, ast.Tuple, ast.Starred, ast.Dict)):
        label = False
    for part in parts:
        yield from _find(part, names, label)
