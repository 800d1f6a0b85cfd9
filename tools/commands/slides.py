"""``slides``: a lesson as a notebook for a live talk, with a slide type for each cell.

jupyterlab-rise shows it, and ``jupyter nbconvert --to slides FILE --execute`` makes a page of it.
"""

from __future__ import annotations

import argparse
import copy
import re

from nbformat import NotebookNode

from course_language import _
from course_utils.course import fresh_notebook
from tools.authoring.form import parse, tags
from tools.commands.lesson_copies import add_lesson_arguments, write_lessons

NEEDS = ("nbformat", "ruff", "yaml")

_SHOWN = re.compile(rf"^\s*([-*] |[|>]|\d+\. |```|!\[|<img|#)|\*\*{_('Predict')}", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    add_lesson_arguments(parser, "+", _("a lesson's number: 01"), "slides")


def main(args: argparse.Namespace) -> int:
    """Write each lesson's slides as a notebook, and keep one that exists already (perhaps with notes).

    Return 1 if one cannot be written, 2 for an unknown lesson, else 0.
    """
    return write_lessons(
        args,
        "live",
        lambda lesson: for_slides(parse(fresh_notebook(lesson))),
        _("{path}: open it in JupyterLab with jupyterlab-rise, and press Alt+R."),
        keep=_("{path} is there already, perhaps with your notes: move it away for a new one."),
    )


def for_slides(nb: NotebookNode) -> NotebookNode:
    """Return a copy with ``slideshow`` metadata; cells are split at their level-2 headings."""
    nb = copy.deepcopy(nb)
    nb.cells = [part for cell in nb.cells for part in _parts(cell)]
    for cell, following in zip(nb.cells, [*nb.cells[1:], None], strict=True):
        cell.metadata["slideshow"] = {"slide_type": slide_type(cell, following)}
    return nb


def slide_type(cell: NotebookNode, following: NotebookNode | None) -> str:
    """Return a cell's slide type; ``following`` is the next cell or None.

    It is ``"slide"``, ``"subslide"``, ``"fragment"``, ``"notes"`` or ``"skip"``. A heading begins a slide;
    prose without a list, table, code or picture becomes speaker notes.
    """
    if cell.id in ("fetch", "setup", "footer"):
        return "skip"
    if cell.cell_type == "markdown":
        if cell.source.lstrip().startswith(("# ", "## ")):
            return "slide"
        asks = following is not None and "predict(" in following.source
        return "subslide" if asks or _SHOWN.search(cell.source) else "notes"
    return "fragment" if "exercise" in tags(cell) or "predict(" in cell.source else "subslide"


def _parts(cell: NotebookNode) -> list[NotebookNode]:
    """Return a Markdown cell split before each level-2 heading, any other cell as it is.

    Parts after the first have the cell's id with ``-1``, ``-2``, ...
    """
    if cell.cell_type != "markdown":
        return [cell]
    parts = []
    for i, text in enumerate(re.split(r"\n+(?=## )", cell.source)):
        part = copy.deepcopy(cell)
        part.source, part.id = text, f"{cell.id}-{i}" if i else cell.id
        parts.append(part)
    return parts
