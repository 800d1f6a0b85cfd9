"""The canonical form of a lesson's notebook file: reading, formatting, and finding differences."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_utils import files
from course_utils.stubs import AuthoringError

LARGEST = 20_000_000
"""The maximum size of a notebook in bytes; our largest, executed, has under two million."""
DEEPEST = 40
"""The maximum nesting depth of a notebook's JSON; outputs of other tools are deeper than ours."""
LINE_LENGTH = 100
"""The maximum line length of code in a cell; the course's own code may have 110 characters."""
CHECK_OUTPUT = "nbval-check-output"
KNOWN_TAGS = {"exercise", "generated", CHECK_OUTPUT}
CELL_METADATA = {"cellView", "course", "deletable", "editable", "slideshow", "tags"}
GENERATED_METADATA = CELL_METADATA | {"jupyter"}
"""Metadata allowed in generated cells; ``jupyter`` folds the cell that fetches the helpers."""
FIX = "python -m course_utils notebooks --fix"
RUN = "python -m course_utils notebooks --run"

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
RESERVED_ID = re.compile(r"header|fetch|setup|footer|task-.+")
"""The ids of generated cells."""


class CodeError(AuthoringError):
    """A code cell is not valid Python, so ruff cannot format it; the message begins with the cell."""


@dataclass(frozen=True)
class Problem:
    """One fault of a file: the file, the cell ("" for the whole file), what is wrong, how to fix it."""

    file: str
    cell: str
    what: str
    fix: str

    def __str__(self) -> str:
        where = f"{self.file}: cell {self.cell}" if self.cell else self.file
        return f"{where}: {self.what} -> {self.fix}"


def read(path: Path) -> NotebookNode:
    """Read a notebook file without repairing anything in it.

    Raises
    ------
    AuthoringError
        If there is no such file, or it is not a notebook of format 4.
    """
    try:
        return parse(files.read_text(path, max_bytes=LARGEST))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        if not path.exists():
            raise AuthoringError(f"{path.name} does not exist: write it, or mark it planned") from None
        raise AuthoringError(f"{path.name} is not a notebook of format 4 ({error})") from None


def parse(text: str) -> NotebookNode:
    """Parse a notebook's JSON text without repairs.

    Raises
    ------
    AuthoringError
        If it is not of format 4.
    ValueError
        If it is too deeply nested, or a source or ``metadata.course`` has the wrong type.
    """
    if files.parse(text, DEEPEST)["nbformat"] != 4:
        raise AuthoringError("open it in JupyterLab and save it to bring it to format 4")
    nb = nbformat.v4.reads(text)
    for one in [nb, *nb.cells]:
        course = one["metadata"].get("course", {})
        if not isinstance(course, dict) or not isinstance(one.get("source", ""), str):
            raise ValueError("a source or metadata of another kind")
    return nb


def dumps(nb: NotebookNode) -> str:
    """Return the notebook as JSON text as stored on disk: sorted keys, indent 1, final newline."""
    return nbformat.v4.writes(nb) + "\n"


def tags(cell: NotebookNode) -> list[str]:
    """Return a copy of the list of a cell's tags."""
    return list(cell.get("metadata", {}).get("tags", []))


def cell_name(nb: NotebookNode, index: int) -> str:
    """Return a cell's id, or ``#`` and its position from 1 if it has none."""
    return nb.cells[index].get("id") or f"#{index + 1}"


def notebook_metadata(lesson_id: str) -> dict:
    """Return the complete notebook metadata that a lesson must have."""
    return {
        "accelerator": "GPU",
        "colab": {"gpuType": "T4", "provenance": []},
        "course": {"lesson": lesson_id},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def canonical(nb: NotebookNode, lesson_id: str) -> NotebookNode:
    """Return a copy of a notebook in the canonical form of a lesson.

    It is format 4.5 with the standard metadata, formatted code, no outputs and unique ids; empty cells are
    dropped. Code that does not parse stays as it is.
    """
    nb = copy.deepcopy(nb)
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata = nbformat.from_dict(notebook_metadata(lesson_id))
    nb.cells = [cell for cell in nb.cells if not _is_empty(cell)]
    with contextlib.suppress(CodeError):
        for cell, source in zip(nb.cells, format_code(nb), strict=True):
            cell.source = source
    for cell in nb.cells:
        cell.source = tidy(cell.source) if cell.cell_type == "markdown" else cell.source.strip("\n")
        cell.metadata = _cell_metadata(cell)
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    _assign_ids(nb)
    return nb


def format_code(nb: NotebookNode) -> list[str]:
    """Return the sources of all cells, with code cells formatted by ruff.

    Raises
    ------
    CodeError
        If a code cell is not Python (magics are allowed).
    """
    cells = [
        nbformat.v4.new_code_cell(cell.source, id=f"c{i}")
        if cell.cell_type == "code"
        else nbformat.v4.new_markdown_cell(id=f"c{i}")
        for i, cell in enumerate(nb.cells)
    ]
    bare = nbformat.v4.new_notebook(cells=cells, metadata=notebook_metadata("00"))
    failure, formatted = _ruff(nbformat.v4.writes(bare))
    if not failure:
        pairs = zip(nb.cells, nbformat.v4.reads(formatted).cells, strict=True)
        return [new.source if old.cell_type == "code" else old.source for old, new in pairs]
    match = re.search(r"lesson\.ipynb:(?:cell )?(\d+):[\d:]*\s*(.*)", failure)
    if not match:
        raise CodeError(f"is not Python: {failure.strip().splitlines()[-1]}")
    raise CodeError(f"cell {cell_name(nb, int(match[1]) - 1)}: is not Python: {match[2]}")


@functools.lru_cache(maxsize=32)
def _ruff(notebook: str) -> tuple[str, str]:
    """Format a notebook's JSON text with ruff; return its error message, or "", and the formatted text."""
    options = ["--isolated", "--config", f"line-length={LINE_LENGTH}", "--no-cache"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", *options, "--stdin-filename", "lesson.ipynb", "-"],
        input=notebook,
        capture_output=True,
        encoding="utf-8",
    )
    return (done.stderr or "ruff failed" if done.returncode else ""), done.stdout


def differences(nb: NotebookNode, mended: NotebookNode, file: str) -> Iterator[Problem]:
    """Yield a problem for each cell and metadata key that differs from what ``notebooks --fix`` writes.

    ``mended`` is the notebook that it would write.
    """
    if nb.nbformat_minor != mended.nbformat_minor:
        yield Problem(file, "", f"is nbformat 4.{nb.nbformat_minor}, not 4.5", FIX)
    for key in sorted({*nb.metadata, *mended.metadata}):
        if nb.metadata.get(key) != mended.metadata.get(key):
            yield Problem(file, "", f"has other notebook metadata than a lesson: {key}", FIX)
    written = {cell.id: cell for cell in mended.cells}
    for i, cell in enumerate(nb.cells):
        fresh = written.pop(cell.get("id"), None)
        if fresh is None:
            what = "is empty, has no valid id of its own, or is generated for nothing here"
            yield Problem(file, cell_name(nb, i), what, FIX)
        elif cell != fresh:
            keys = [key for key in sorted({*cell, *fresh}) if cell.get(key) != fresh.get(key)]
            what = f"has another {' and '.join(keys)} than --fix writes"
            yield Problem(file, cell_name(nb, i), what, FIX)
    for ident in filter(RESERVED_ID.fullmatch, written):
        yield Problem(file, ident, "is missing", FIX)


def form_problems(nb: NotebookNode, file: str) -> Iterator[Problem]:
    """Yield faults of form that an author must correct: unknown tags, and code that is not Python."""
    for i, cell in enumerate(nb.cells):
        for tag in tags(cell):
            if tag not in KNOWN_TAGS:
                fix = f"remove the tag or use one of: {', '.join(sorted(KNOWN_TAGS))}"
                if "raise" in tag:
                    fix = "remove the tag; put the deliberate error in `with expect_error(...)`"
                yield Problem(file, cell_name(nb, i), f"has an unknown tag: {tag}", fix)
        if CHECK_OUTPUT in tags(cell) and cell.cell_type != "code":
            what = f"is tagged {CHECK_OUTPUT} but is not a code cell"
            yield Problem(file, cell_name(nb, i), what, "remove the tag")
    try:
        format_code(nb)
    except CodeError as error:
        yield Problem(file, "", str(error), "correct the code")


def _is_empty(cell: NotebookNode) -> bool:
    """Return whether a cell has neither source nor attachments."""
    return not cell.source.strip() and not cell.get("attachments")


def tidy(markdown: str) -> str:
    """Return Markdown without trailing white space on lines and without blank lines at both ends."""
    return "\n".join(line.rstrip() for line in markdown.splitlines()).strip("\n")


def _cell_metadata(cell: NotebookNode) -> NotebookNode:
    """Return the cell's metadata reduced to the allowed keys with non-empty values, tags sorted."""
    wanted = GENERATED_METADATA if "generated" in tags(cell) else CELL_METADATA
    kept = {name: value for name, value in cell.get("metadata", {}).items() if name in wanted}
    if "tags" in kept:
        kept["tags"] = sorted(set(kept["tags"]))
    return nbformat.from_dict({name: value for name, value in kept.items() if value not in ([], {})})


def _assign_ids(nb: NotebookNode) -> None:
    """Replace, in place, ids that are missing, invalid, reserved for generated cells, or used twice.

    The first use of an id keeps it; generated cells come before others.
    """
    taken: set[str] = set()
    for cell in sorted(nb.cells, key=lambda cell: "generated" not in tags(cell)):
        ident = cell.get("id") or ""
        reserved = RESERVED_ID.fullmatch(ident) and "generated" not in tags(cell)
        if ident in taken or reserved or not _ID.fullmatch(ident):
            cell.id = uuid.uuid4().hex[:8]
        taken.add(cell.id)
