"""The canonical form of a lesson's notebook on disk: read, check, mend, write.

The functions work on notebook nodes and strings and touch no file, except ``read``.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.validator import iter_validate

from course_utils import files
from course_utils.cli.bootstrap import COMMAND
from course_utils.stubs import AuthoringError

LARGEST = 20_000_000
"""Bytes that a notebook may have: the largest of ours, executed, has under two million."""
DEEPEST = 40
"""Lists and tables within one another: outputs of others' have a few more than ours."""
LINE_LENGTH = 100
CHECK_OUTPUT = "nbval-check-output"
KNOWN_TAGS = {"exercise", "generated", CHECK_OUTPUT}
CELL_METADATA = {"cellView", "course", "deletable", "editable", "slideshow", "tags"}
GENERATED_METADATA = CELL_METADATA | {"jupyter"}
"""The setup cell is folded; what an author folded in JupyterLab is not."""
FIX = "python -m course_utils notebooks --fix"
RUN = "python -m course_utils notebooks --run"

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_RESERVED_ID = re.compile(r"header|setup|footer|task-.+")


class CodeError(AuthoringError):
    """Code that ruff cannot format; ``index`` is the position of its cell."""

    def __init__(self, index: int | None, message: str):
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, where, and how to mend it."""

    file: str
    cell: str
    what: str
    mend: str

    def __str__(self) -> str:
        place = f"{self.file}: cell {self.cell}" if self.cell else self.file
        return f"{place}: {self.what} -> {self.mend}"


def read(path: Path) -> NotebookNode:
    """Read a notebook without repairing anything in it.

    Raises
    ------
    AuthoringError
        If there is no such file or it is not a notebook of format 4.
    """
    try:
        return parse(files.read_text(path, most=LARGEST))
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        if not path.exists():
            raise AuthoringError(
                f"{path.name} does not exist: write it, or mark it planned"
            ) from None
        raise AuthoringError(f"{path.name} is not a notebook of format 4 ({error})") from None


def parse(text: str) -> NotebookNode:
    """Make a notebook node of JSON text, without repairs."""
    if files.parse(text, DEEPEST)["nbformat"] != 4:
        raise AuthoringError("open it in JupyterLab and save it to bring it to format 4")
    nb = nbformat.v4.reads(text)
    for one in [nb, *nb.cells]:
        course = one["metadata"].get("course", {})
        if not isinstance(course, dict) or not isinstance(one.get("source", ""), str):
            raise ValueError("a source or metadata of another kind")
    return nb


def dumps(nb: NotebookNode) -> str:
    """Return the text that stands on disk: sorted keys, indent 1, a newline at the end."""
    return nbformat.v4.writes(nb) + "\n"


def tags(cell: NotebookNode) -> list[str]:
    """Return the tags of a cell."""
    return list(cell.get("metadata", {}).get("tags", []))


def cell_name(nb: NotebookNode, index: int) -> str:
    """Return a cell's id, or its position where it has none."""
    return nb.cells[index].get("id") or f"#{index + 1}"


def notebook_metadata(lesson_id: str) -> dict:
    """Return the metadata every lesson carries, and nothing else."""
    return {
        "accelerator": "GPU",
        "colab": {"gpuType": "T4", "provenance": []},
        "course": {"lesson": lesson_id},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }


def canonical(nb: NotebookNode, lesson_id: str) -> NotebookNode:
    """Return a copy in canonical form.

    Empty cells go; every other cell stays, in its place. Code that does not parse stays as it is.
    """
    nb = copy.deepcopy(nb)
    nb.nbformat, nb.nbformat_minor = 4, 5
    nb.metadata = nbformat.from_dict(notebook_metadata(lesson_id))
    nb.cells = [cell for cell in nb.cells if not _is_empty(cell)]
    try:
        formatted = format_code(nb)
    except CodeError:
        formatted = [cell.source for cell in nb.cells]
    for cell, source in zip(nb.cells, formatted, strict=True):
        cell.source = tidy(source) if cell.cell_type == "markdown" else source.strip("\n")
        cell.metadata = _cell_metadata(cell)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        else:
            cell.pop("outputs", None)
            cell.pop("execution_count", None)
    _give_ids(nb)
    return nb


def format_code(nb: NotebookNode) -> list[str]:
    """Return every cell's source, code cells as ruff formats them.

    Raises
    ------
    CodeError
        If a code cell is not Python (magics are allowed).
    AuthoringError
        If ruff is not installed.
    """
    cells = [
        {"cell_type": c.cell_type, "metadata": {}, "source": c.source, "id": f"c{i}"}
        | ({"outputs": [], "execution_count": None} if c.cell_type == "code" else {})
        for i, c in enumerate(nb.cells)
    ]
    bare = {"cells": cells, "metadata": notebook_metadata("00"), "nbformat": 4, "nbformat_minor": 5}
    failure, formatted = _ruff(json.dumps(bare))
    if not failure:
        return [c.source for c in nbformat.v4.reads(formatted).cells]
    if "No module named ruff" in failure:
        raise AuthoringError(
            f"ruff is missing: run  {COMMAND} test --quick  once, which sets up .venv with all that the tools need."
        )
    found = re.search(r"lesson\.ipynb:(?:cell )?(\d+):[\d:]*\s*(.*)", failure)
    if not found:
        raise CodeError(None, failure.strip().splitlines()[-1])
    raise CodeError(int(found[1]) - 1, found[2])


@functools.lru_cache(maxsize=32)
def _ruff(notebook: str) -> tuple[str, str]:
    """Format a notebook's text; return what ruff complained of, or "", and the formatted text."""
    options = ["--isolated", "--config", f"line-length={LINE_LENGTH}", "--no-cache"]
    # The program itself needs no Python to start it.
    program = shutil.which("ruff", path=str(Path(sys.executable).parent))
    ruff = [program] if program else [sys.executable, "-m", "ruff"]
    done = subprocess.run(
        [*ruff, "format", *options, "--stdin-filename", "lesson.ipynb", "-"],
        input=notebook,
        capture_output=True,
        encoding="utf-8",
    )
    return (done.stderr or "ruff failed" if done.returncode else ""), done.stdout


def form_problems(nb: NotebookNode, lesson_id: str, file: str) -> list[Problem]:
    """List what is not in canonical form, cell by cell."""
    return [Problem(file, *found) for found in _form_problems(nb, lesson_id)]


def _form_problems(nb: NotebookNode, lesson_id: str) -> Iterator[tuple[str, str, str]]:
    if (nb.nbformat, nb.nbformat_minor) != (4, 5):
        yield "", f"is nbformat {nb.nbformat}.{nb.nbformat_minor}, not 4.5", FIX
    yield from _metadata_problems(nb, lesson_id)
    seen: set[str] = set()
    for i, cell in enumerate(nb.cells):
        name = cell_name(nb, i)
        ident = cell.get("id")
        if not ident or not _ID.fullmatch(ident):
            yield name, "has no valid id", FIX
        elif ident in seen:
            yield name, "has the id of an earlier cell", FIX
        elif _RESERVED_ID.fullmatch(ident) and "generated" not in tags(cell):
            yield name, "has an id kept for generated cells", FIX
        seen.add(ident or "")
        if _is_empty(cell):
            yield name, "is empty", FIX
        stray = sorted(set(cell.get("metadata", {})) - _metadata_of(cell))
        if stray:
            yield name, f"has metadata no lesson needs: {', '.join(stray)}", FIX
        for tag in tags(cell):
            if tag not in KNOWN_TAGS:
                advice = f"remove the tag or use one of: {', '.join(sorted(KNOWN_TAGS))}"
                if "raise" in tag:
                    advice = "remove the tag; put the deliberate error in `with expect_error(...)`"
                yield name, f"has an unknown tag: {tag}", advice
        if cell.cell_type == "markdown" and cell.source != tidy(cell.source):
            yield name, "has white space at a line's end, or blank lines around the text", FIX
        if cell.cell_type == "code":
            if cell.get("outputs") or cell.get("execution_count") is not None:
                yield name, "has outputs or an execution count: a lesson ships without", FIX
        elif CHECK_OUTPUT in tags(cell):
            yield name, f"is tagged {CHECK_OUTPUT} but is not a code cell", "remove the tag"
    yield from _code_problems(nb)


def schema_problems(nb: NotebookNode, file: str) -> list[Problem]:
    """List what the notebook format itself forbids."""
    errors = iter_validate(nb, version=4, version_minor=5)
    return [
        Problem(file, "", f"breaks the notebook format: {error.message[:120]}", FIX)
        for error in errors
    ]


def _metadata_problems(nb: NotebookNode, lesson_id: str) -> Iterator[tuple[str, str, str]]:
    expected = notebook_metadata(lesson_id)
    for key in sorted(set(nb.metadata) | set(expected)):
        if key not in expected:
            yield "", f"has notebook metadata no lesson needs: {key}", FIX
        elif nb.metadata.get(key) != expected[key]:
            yield "", f"notebook metadata {key} is not {json.dumps(expected[key])}", FIX


def _code_problems(nb: NotebookNode) -> Iterator[tuple[str, str, str]]:
    try:
        formatted = format_code(nb)
    except CodeError as error:
        name = "" if error.index is None else cell_name(nb, error.index)
        yield name, f"is not Python: {error}", "correct the code"
        return
    for i, (cell, source) in enumerate(zip(nb.cells, formatted, strict=True)):
        if cell.cell_type == "code" and cell.source != source.strip("\n") and not _is_empty(cell):
            yield cell_name(nb, i), "is not formatted as ruff does", FIX


def _is_empty(cell: NotebookNode) -> bool:
    return not cell.source.strip() and not cell.get("attachments")


def tidy(markdown: str) -> str:
    """Return Markdown without white space at line ends or blank lines around it."""
    return "\n".join(line.rstrip() for line in markdown.splitlines()).strip("\n")


def _metadata_of(cell: NotebookNode) -> set[str]:
    return GENERATED_METADATA if "generated" in tags(cell) else CELL_METADATA


def _cell_metadata(cell: NotebookNode) -> NotebookNode:
    kept = {k: v for k, v in cell.get("metadata", {}).items() if k in _metadata_of(cell)}
    if "tags" in kept:
        kept["tags"] = sorted(set(kept["tags"]))
    return nbformat.from_dict({k: v for k, v in kept.items() if v not in ([], {})})


def _give_ids(nb: NotebookNode) -> None:
    """Keep each valid id's first use; make the others from the cell's content."""
    generated = {c.get("id") for c in nb.cells if "generated" in tags(c)}
    taken: set[str] = set()
    missing = []
    for cell in nb.cells:
        ident = cell.get("id") or ""
        own = "generated" in tags(cell) or ident not in generated
        free = "generated" in tags(cell) or not _RESERVED_ID.fullmatch(ident)
        if _ID.fullmatch(ident) and ident not in taken and own and free:
            taken.add(ident)
        else:
            missing.append(cell)
    for cell in missing:
        digest = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:8]
        ident, number = digest, 1
        while ident in taken:
            number += 1
            ident = f"{digest}-{number}"
        cell.id = ident
        taken.add(ident)
