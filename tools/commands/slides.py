"""``slides``: a lesson as a notebook for a live talk, with a slide type for each cell.

jupyterlab-rise shows it, and ``jupyter nbconvert --to slides FILE --execute`` makes a page of it.
"""

from __future__ import annotations

import argparse
import copy
import re
from pathlib import Path

from nbformat import NotebookNode

from course_language import word
from course_utils import files
from course_utils.course import fresh_notebook, load_course
from tools.authoring.form import dumps, parse, tags
from tools.commands import fail

NEEDS = ("nbformat", "ruff", "yaml")

_SHOWN = re.compile(rf"^\s*([-*] |[|>]|\d+\. |```|!\[|<img|#)|\*\*{word('Predict')}", re.MULTILINE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("lessons", nargs="+", metavar="LESSON", help="a lesson's number: 01")
    parser.add_argument(
        "--output", type=Path, default=Path("slides"), metavar="FOLDER", help="default: slides"
    )


def main(args: argparse.Namespace) -> int:
    """Write one notebook a lesson; 1 where one cannot be written, 2 for a lesson that does not exist."""
    try:
        for lesson in load_course().chosen(args.lessons):
            path = args.output / f"{Path(lesson.file).stem}_live.ipynb"
            if path.exists():
                print(
                    f"{path} is there already, perhaps with your notes: move it away for a new one."
                )
                continue
            args.output.mkdir(parents=True, exist_ok=True)
            files.write(path, dumps(for_slides(parse(fresh_notebook(lesson)))))
            print(f"{path}: open it in JupyterLab with jupyterlab-rise, and press Alt+R.")
    except LookupError as error:
        return fail(error, 2)
    except OSError as error:
        return fail(f"{args.output} cannot be written ({error.strerror}).", 1)
    return 0


def for_slides(nb: NotebookNode) -> NotebookNode:
    """Return a copy with ``slideshow`` metadata; a heading within a cell begins a slide too."""
    nb = copy.deepcopy(nb)
    nb.cells = [part for cell in nb.cells for part in _parts(cell)]
    for cell, following in zip(nb.cells, [*nb.cells[1:], None], strict=True):
        cell.metadata["slideshow"] = {"slide_type": slide_type(cell, following)}
    return nb


def slide_type(cell: NotebookNode, following: NotebookNode | None) -> str:
    """Say what a cell is: a heading begins a slide, and prose between figures becomes the speaker's notes."""
    if cell.id in ("setup", "footer"):
        return "skip"
    if cell.cell_type == "markdown":
        if cell.source.lstrip().startswith(("# ", "## ")):
            return "slide"
        asks = following is not None and "predict(" in following.source
        return "subslide" if asks or _SHOWN.search(cell.source) else "notes"
    return "fragment" if "exercise" in tags(cell) or "predict(" in cell.source else "subslide"


def _parts(cell: NotebookNode) -> list[NotebookNode]:
    texts = re.split(r"\n+(?=## )", cell.source) if cell.cell_type == "markdown" else [cell.source]
    parts = [copy.deepcopy(cell) for _ in texts]
    for i, (part, text) in enumerate(zip(parts, texts, strict=True)):
        part.source = text
        part.id = f"{cell.id}-{i}" if i else cell.id
    return parts
