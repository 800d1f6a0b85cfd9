"""A Babel extractor for Python files: arguments of gettext functions, and text fields of exercises."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, BinaryIO

from babel.messages.extract import extract_python

from course_utils.exercises.exercise import TEXTS

KEYWORDS = {"_": None, "N_": None, "ngettext": (1, 2)}


def messages(
    file: BinaryIO, keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, str | None, Any, list[str]]]:
    """Yield line, function, message and comments of each text in a Python file: a Babel extractor.

    Besides gettext calls it extracts the text fields of exercises.
    """
    yield from extract_python(file, keywords, comment_tags, options)
    file.seek(0)
    for exercise in _exercises(ast.parse(file.read())):
        for field in (keyword for keyword in exercise.keywords if keyword.arg in TEXTS):
            yield from ((text.lineno, None, text.value, []) for text in _texts(field.value))


def _exercises(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that create an exercise: ``Exercise(…)``, or what is assigned to ``EXERCISE``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EXERCISE":
            node = node.value
        elif not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Exercise"):
            continue
        if isinstance(node, ast.Call):
            yield node


def _texts(field: ast.expr) -> Iterator[ast.Constant]:
    """Yield the string nodes of a field: itself, or those in a tuple or in a dict's values."""
    if isinstance(field, ast.Constant) and isinstance(field.value, str):
        yield field
    parts = field.values if isinstance(field, ast.Dict) else getattr(field, "elts", ())
    for part in parts:
        yield from _texts(part)
