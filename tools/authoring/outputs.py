"""The outputs that are compared: a notebook ships without any, a file for each lesson keeps them.

``tests/outputs/NN_name.json`` maps the id of each cell tagged ``nbval-check-output`` to its outputs.
``notebooks --run`` writes it; the test puts the outputs into a copy of the notebook, and nbval
compares them with a run.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_utils import files
from course_utils.course import Course, Lesson
from course_utils.stubs import AuthoringError
from tools.authoring.form import CHECK_OUTPUT, RUN, Problem, tags

COMPARABLE = {"text/plain", "text/html", "text/markdown", "text/latex"}

Outputs = Mapping[str, list[dict[str, Any]]]


def path_of(course: Course, lesson: Lesson) -> Path:
    """Return where a lesson's expected outputs are kept."""
    name = Path(lesson.file).with_suffix(".json").name
    return course.path.parent.parent / "tests" / "outputs" / name


def stored(course: Course, lesson: Lesson) -> Outputs:
    """Return a lesson's expected outputs by cell id; none where there is no file."""
    path = path_of(course, lesson)
    return json.loads(files.read_text(path)) if path.exists() else {}


def store(course: Course, lesson: Lesson, outputs: Outputs) -> bool:
    """Write a lesson's expected outputs; return whether that changed the file."""
    path = path_of(course, lesson)
    text = json.dumps(outputs, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if (path.read_text(encoding="utf-8") if path.exists() else "{}\n") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text)
    return True


def compared(nb: NotebookNode) -> list[NotebookNode]:
    """Return the cells whose output is compared."""
    return [c for c in nb.cells if c.cell_type == "code" and CHECK_OUTPUT in tags(c)]


def with_expected(nb: NotebookNode, outputs: Outputs) -> NotebookNode:
    """Return a copy that holds the expected outputs, as nbval reads them.

    nbval compares nothing in a cell without an execution count, so each cell that is to be compared gets one.
    """
    nb = copy.deepcopy(nb)
    for cell in compared(nb):
        if outputs.get(cell.id):
            cell.outputs = nbformat.from_dict(outputs[cell.id])
            cell.execution_count = 1
    return nb


def of_run(done: NotebookNode) -> Outputs:
    """Return the outputs to compare, from an executed notebook.

    Raises
    ------
    AuthoringError
        If a cell printed nothing, or what cannot be compared.
    """
    kept = {}
    for cell in compared(done):
        kept[cell.id] = _stable(cell.outputs)
        faults = [fault for output in kept[cell.id] if (fault := uncomparable(output))]
        if faults or not kept[cell.id]:
            raise AuthoringError(
                f"cell {cell.id} is to be compared but gave {[*faults, 'no output'][0]}: "
                f"print text there, or remove its tag {CHECK_OUTPUT}"
            )
    return kept


def uncomparable(output: Mapping[str, Any]) -> str | None:
    """Say what in an output cannot be compared between machines, or return None."""
    if output["output_type"] == "error":
        return f"an error ({output.get('ename')})"
    if output["output_type"] == "stream":
        return "text on stderr" if output.get("name") == "stderr" else None
    other = sorted(set(output.get("data", {})) - COMPARABLE)
    return f"an output of type {other[0]}" if other else None


def output_problems(nb: NotebookNode, outputs: Outputs, file: str) -> Iterator[Problem]:
    """Yield what is missing from a lesson's expected outputs, and what no cell prints any more."""
    wanted = [cell.get("id", "") for cell in compared(nb)]
    for ident in wanted:
        if not outputs.get(ident):
            what = "is to be compared but no output is stored, so nothing would be compared"
            yield Problem(file, ident, what, RUN)
    for ident in sorted(set(outputs) - set(wanted)):
        what = f"an output is stored for it, but no cell of that id is tagged {CHECK_OUTPUT}"
        yield Problem(file, ident, what, RUN)


def _stable(outputs: list[NotebookNode]) -> list[dict[str, Any]]:
    """Join neighbouring pieces of one text stream; leave out what changes from run to run."""
    stable: list[dict[str, Any]] = []
    for output in map(dict, copy.deepcopy(outputs)):
        if "metadata" in output:
            output["metadata"] = {}
        if "execution_count" in output:
            output["execution_count"] = None
        if stable and "name" in output and output["name"] == stable[-1].get("name"):
            stable[-1]["text"] += output["text"]
        else:
            stable.append(output)
    return stable
