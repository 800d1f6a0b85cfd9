"""The texts of a program, for Babel: what stands in gettext's functions, and the fields of exercises."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from babel.messages.extract import extract_python

from course_utils.exercises.exercise import TEXTS

KEYWORDS = {"_": None, "N_": None, "ngettext": (1, 2)}
FIELDS: Mapping[str, tuple[str, ...]] = {"Exercise": TEXTS}
"""Classes that translate fields of theirs."""


def messages(
    file: BinaryIO, keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, str | None, Any, list[str]]]:
    """Yield line, function, message and comments of each text, as Babel wants them of an extractor."""
    yield from extract_python(file, keywords, comment_tags, options)
    file.seek(0)
    for call in ast.walk(ast.parse(file.read())):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            names = FIELDS.get(call.func.id, ())
            for field in (keyword for keyword in call.keywords if keyword.arg in names):
                yield from ((node.lineno, None, node.value, []) for node in _texts(field.value))


def _texts(value: ast.expr) -> Iterator[ast.Constant]:
    """Yield the strings of a field: its own, or those of a tuple or of a dict's values."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        yield value
    elif isinstance(value, (ast.Tuple, ast.List)):
        for part in value.elts:
            yield from _texts(part)
    elif isinstance(value, ast.Dict):
        for part in value.values:
            yield from _texts(part)
