"""Which strings of a program are texts for a reader, and a program with these texts in another language.

One rule serves both: what the command ``translate`` collects for the translators, and what is replaced when a module
is compiled. A text is a string of two words or more, or a label of a figure; not a docstring, a key, what is compared,
what is looked for, a program, or markup alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LABELS = _words(
    "annotate axhline axvline bar barh box card curves hist legend measure plot print scatter set_label set_title "
    "set_xlabel set_ylabel show_table slider suptitle table text title try_out xlabel ylabel"
)
_LABEL_KEYWORDS = _words("desc description expected label note seen text title unit xlabel ylabel")
_HEADS = ("head", "_HEAD")  # names of a table's first row
_NOT_READ = _words(
    "Path Popen compile device edited encode endswith eval exec find find_spec findall finditer fullmatch get getattr "
    "glob hasattr import_module index match open pop removeprefix removesuffix rglob run search setattr split "
    "startswith sub"
)
_NOT_READ_KEYWORDS = _words("choices encoding family id mode needs style")
_VALUES = _words("None True False cpu cuda measured modelled mps published recorded sim x xpu y")
_NOT_WORDS = _VALUES | _words(  # matplotlib's own
    "black bold both bottom column data equal grey large left line linear log none normal off on outside points right "
    "row small upper white"
)
_TOLD = ("expected", "seen")  # a check's: matplotlib has no part in them
WORD = "word"
_WORDS = re.compile(r"(?<![\w<&/#.-])(?:[A-Za-z]['A-Za-z]+|[Aa](?= ))")

_TAG = re.compile(r"<[^<>]*>")
_CODE_LIKE = re.compile(  # a part of a program
    r"""\w=["'\w]|\w\([\w"'(\[]|\w\[["'\w:]|\) [*/+-] |^\s*[\w.]+ [-+*/]?= |"""
    r"""\bin \w+\[|\bfor \w+ in (\(|\w+\.)|\w" (if|for) |^\{\w+\} in \w+$"""
)
_STATEMENT = re.compile(r"^\s*(def|import|from|class|for|with|if) .*[:=]$", re.MULTILINE)


def _bare(text: str) -> str:
    """Return a text without markup, code spans and links' addresses."""
    text = re.sub(r"<[^<>]*>|`[^`]*`|\]\([^)]*\)|https?://\S+|\$[^$]*\$", " ", text)
    return re.sub(r"\{[^{}]*\}", " ", text)


def is_program(text: str) -> bool:
    """Tell whether a string is Python, and not words that happen to be."""
    try:
        tree = ast.parse(text.strip())
    except (SyntaxError, ValueError):
        return False
    value = getattr(tree.body[0], "value", None) if len(tree.body) == 1 else None
    told = tree.body and isinstance(tree.body[0], ast.AnnAssign)  # "Found: 3"
    if isinstance(value, ast.Tuple):  # "{0}, related"
        told = all(isinstance(part, (ast.Name, ast.Set, ast.BoolOp)) for part in value.elts)
    told = told or isinstance(getattr(value, "ops", [None])[0], (ast.In, ast.Is))
    return not told and tree.body != []


def reads_as_text(text: str, label: bool | str = False) -> bool:
    """Tell whether a string is written for a reader: words, not a program or markup; ``label`` may be its keyword."""
    words = _WORDS.findall(_bare(text))
    part = (
        _CODE_LIKE.search(_TAG.sub("", text))
        and "`" not in text
        and len(words) < 9
        and not text.endswith(".")
    )
    if part:
        return False
    if label:
        not_words = _VALUES if label in _TOLD else _NOT_WORDS
        names = re.fullmatch(r"[\w.]*[_.:/%][\w.%]*(?<!:)", text) or set(text.split()) <= not_words
        return bool(words) and not names
    beside_value = bool(re.search(r"\{\w+\}\W* [A-Za-z]{2,}|[A-Za-z]{2,}\W* \W*\{\w+\}", text))
    if len(words) + beside_value < 2 or " " not in text.strip():
        return False
    if len(words) <= 12 and _STATEMENT.search(text) and "<" not in text:
        return False
    return not is_program(text)


def message(node: ast.expr) -> tuple[str, list[ast.FormattedValue]] | None:
    """Return a string's text, its values as {name} or {0}, and the values; None for what is no string.

    Braces that an f-string shows are doubled, as ``str.format`` wants them.
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


def context(node: ast.expr) -> str:
    """Return the context of a text in a catalogue: that of single words, or none."""
    return WORD if getattr(node, "is_word", False) else ""


def fields(text: str) -> list[str]:
    """Return the names of the values in a text, in their order."""
    return re.findall(r"\{(\w+)\}", re.sub(r"\{\{|\}\}", "", text))


class _Finder:
    """Walk a program and hand each text to ``found``; what that returns takes its place."""

    def __init__(
        self,
        found: Callable[[ast.expr], ast.expr],
        kept: set[str],
        raises: bool = True,
        docs: bool = False,
        labels: bool = False,
    ):
        self.found, self.kept = found, kept
        self.raises, self.docs, self.labels = raises, docs, labels

    def change(self, node: ast.AST, label: bool = False, read: bool = True) -> ast.AST:
        """Go through one node and below; return it, or what takes its place."""
        if (got := message(node)) is not None:
            return self._string(node, got, label, read)
        if isinstance(node, ast.Call):
            return self._call(node, label, read)
        if isinstance(node, (ast.Compare, ast.Subscript, ast.Match)):
            for name, value in ast.iter_fields(node):
                inner = name in ("cases", "value") and read
                setattr(node, name, self._each(value, label=False, read=inner))
            return node
        if isinstance(node, ast.Dict):
            edits = any(map(_is_edited, node.keys))
            node.values = self._each(node.values, label, read and not edits)
            if self.docs:  # a label that a cell makes
                made = (isinstance(key, ast.JoinedStr) for key in node.keys)
                node.keys = [
                    self.change(k) if m else k for k, m in zip(node.keys, made, strict=True)
                ]
            return node
        if isinstance(node, ast.Raise) and not self.raises:
            return node
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and not self.docs:
            return node  # a docstring, or what stands below a name in its place
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if isinstance(node, ast.FunctionDef) and f"def {node.name}" in self.kept:
                return node
            if hasattr(node, "args"):
                node.args = self.change(node.args)
            node.body = self._each(node.body)
            return node
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in _HEADS:
            node.value = self.change(node.value, label=True)
            return node
        inherit = isinstance(
            node, (ast.IfExp, ast.BoolOp, ast.BinOp, ast.List, ast.Tuple, ast.Starred)
        )
        label = self.labels or (label and inherit)
        if isinstance(node, ast.IfExp):  # "less" if a < b else "more": in a cell both are words
            sides = [message(side) for side in (node.body, node.orelse)]
            label = label or any(side and reads_as_text(side[0]) for side in sides)
            label = label or (self.docs and all(sides))
        read = read or (isinstance(node, ast.stmt) and not inherit)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_comment"):
                setattr(node, name, self._each(value, label, read))
        return node

    def _each(self, value, label=False, read=True):
        if isinstance(value, list):
            return [self._each(item, label, read) for item in value]
        return self.change(value, label, read) if isinstance(value, ast.AST) else value

    def _string(self, node, got, label, read):
        text, values = got
        for value in values:  # of the words that a program chooses among, the reader sees one
            chosen = isinstance(value.value, (ast.IfExp, ast.BoolOp))
            value.value = self.change(value.value, label=chosen, read=read)
        shown = reads_as_text(text, label) or any(map(_is_kind, values))
        if not read or text in self.kept or not shown:
            return node
        node.is_word = label and " " not in text.strip()
        return ast.copy_location(self.found(node), node)

    def _call(self, node, label, read):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        node.func = self.change(node.func, read=read and name not in _NOT_READ)
        if name.lstrip("_").startswith(("known_mistake", "edit", "variant", "spoken")):
            return node  # pieces of programs; keys
        if name == "word" and node.args:
            for arg in node.args:
                arg.is_word = (
                    True  # its translation is for this place, not for a key of the same letters
                )
            node.args = [ast.copy_location(self.found(arg), arg) for arg in node.args]
            return node
        named = name in _LABELS
        node.args = [
            self._each(arg, label or named, read and name not in _NOT_READ) for arg in node.args
        ]
        for keyword in node.keywords:
            shown = keyword.arg in _LABEL_KEYWORDS and keyword.arg
            keyword.value = self._each(
                keyword.value, shown, read and keyword.arg not in _NOT_READ_KEYWORDS
            )
        return node


def _is_edited(key: ast.expr | None) -> bool:
    """Tell whether a key is a piece of a program, which the value takes the place of."""
    if isinstance(key, ast.Name):
        return key.id.startswith("_") and key.id.isupper()
    return isinstance(key, ast.Constant) and bool(
        re.search(r"[()=\[\]+]|^return |^for ", str(key.value))
    )


def kept(tree: ast.AST) -> set[str]:
    """Return what is no text though it reads like one: strings used as keys or compared, and references' names."""
    nodes = list(ast.walk(tree))
    names, keys = spoken(nodes), set()
    for node in nodes:
        places: list[ast.AST | None] = []
        if isinstance(node, ast.Compare):
            places = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            places = node.keys
            keys |= {key.id for key in node.keys if isinstance(key, ast.Name)}
        elif isinstance(node, ast.Subscript):
            places = [node.slice]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _NOT_READ:
            places = node.args
        elif (
            isinstance(node, ast.Attribute)
            and node.attr == "split"
            and isinstance(node.value, ast.Name)
        ):
            keys.add(node.value.id)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Exercise":
            names |= {
                f"def {k.value.id}"
                for k in node.keywords
                if k.arg == "reference" and isinstance(k.value, ast.Name)
            }
        for place in places:
            for part in ast.walk(place) if place is not None else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    names.add(part.value)
    for node in nodes:  # a name that is a key, and what it stands for
        if isinstance(node, ast.Assign):
            for target in node.targets:
                both = [target], [node.value]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    both = target.elts, node.value.elts
                for name, value in zip(*both, strict=False):
                    if getattr(name, "id", None) in keys and isinstance(value, ast.Constant):
                        names.add(value.value)
    return names


def keys(tree: ast.AST) -> set[str]:
    """Return the words that a program has as keys of its own and as choices: a lesson's cells show them as labels."""
    names, chosen = set(), set()
    for node in ast.walk(tree):
        shown = node.keys if isinstance(node, ast.Dict) else ()
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            shown = [node.slice]
        if isinstance(node, ast.keyword) and node.arg == "choices":
            parts = (str(getattr(part, "value", "")) for part in getattr(node.value, "elts", ()))
            chosen |= {part for part in parts if part.isalpha() or reads_as_text(part, label=True)}
        names |= {getattr(part, "value", None) for part in shown}
    texts = (text for text in names if isinstance(text, str))
    return chosen | {text for text in texts if reads_as_text(text, label=True)}


def spoken(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the keys that the nodes of a program mark, with ``spoken``, as read by people as well."""
    calls = (node for node in nodes if isinstance(node, ast.Call))
    marked = (call.args for call in calls if getattr(call.func, "id", "") == "spoken")
    return {arg.value for args in marked for arg in args if isinstance(arg, ast.Constant)}


def rules(path: str) -> dict[str, bool]:
    """Return how a module is read, by its path: see ``found``."""
    parts = path.replace("\\", "/").split("/")
    return {
        "raises": "simgpu" not in parts,
        "labels": parts[-1] in ("drawings.py", "explorers.py"),
    }


def found(
    tree: ast.AST,
    raises: bool = True,
    docs: bool = False,
    labels: bool = False,
    keys: Collection[str] = (),
) -> list[ast.expr]:
    """Return the nodes of a program that are texts.

    ``raises`` tells whether what a program raises is one: not where it repeats another library's own message. ``docs``
    tells whether docstrings are: in a lesson's cell they are read. ``labels`` tells whether single words are: in drawings.
    ``keys`` are texts wherever they stand: those of a notebook, which are to stay the same in all its cells.
    """
    seen: list[ast.expr] = []
    _Finder(lambda node: seen.append(node) or node, kept(tree), raises, docs, labels).change(tree)
    if not keys:
        return seen
    parts = {id(part) for node in seen for part in [node, *getattr(node, "values", ())]}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= set(map(id, node.values))
        elif isinstance(node, ast.Constant) and id(node) not in parts and node.value in keys:
            seen.append(node)
    return seen


def translated(
    tree: ast.Module,
    look: Callable[[str, str], str | None],
    raises: bool = True,
    labels: bool = False,
) -> ast.Module:
    """Return a program with its texts in another language, its values where that language wants them.

    Parameters
    ----------
    tree
        The program; it is changed.
    look
        Gives the translation of a text, with its context, or None.
    raises, labels
        See ``found``.
    """

    def change(node: ast.expr) -> ast.expr:
        text, values = message(node)
        for value in filter(_is_kind, values):
            value.value = _said(value.value)  # of a number: a key, and a word that is read
        other = look(text, context(node))
        if other is None:
            return node
        if not isinstance(node, ast.JoinedStr):
            return ast.Constant(other)
        return ast.JoinedStr(list(_parts(other, dict(zip(fields(text), values, strict=True)))))

    tree = _Finder(change, kept(tree), raises, labels=labels).change(tree)
    return ast.fix_missing_locations(tree)


def _is_kind(value: ast.FormattedValue) -> bool:
    return getattr(value.value, "attr", getattr(value.value, "id", "")) == "kind"


def _said(value: ast.expr) -> ast.expr:
    return ast.parse(f"__import__('course_language').say({ast.unparse(value)})", mode="eval").body


def _parts(text: str, values: dict[str, ast.FormattedValue]) -> Iterator[ast.expr]:
    for part in re.split(r"(\{\{|\}\}|\{\w+\})", text):
        if part in ("{{", "}}"):
            yield ast.Constant(part[0])
        elif part.startswith("{"):
            yield values[part[1:-1]]
        elif part:
            yield ast.Constant(part)
