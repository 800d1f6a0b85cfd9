"""Expected outputs of cells, stored in a file for each lesson: notebooks ship without outputs.

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


def expected_path(course: Course, lesson: Lesson) -> Path:
    """Return the path of the JSON file with a lesson's expected outputs."""
    name = Path(lesson.file).with_suffix(".json").name
    return course.path.parent.parent / "tests" / "outputs" / name


def load_expected(course: Course, lesson: Lesson) -> Outputs:
    """Return a lesson's expected outputs by cell id; an empty dict if there is no file."""
    path = expected_path(course, lesson)
    return json.loads(files.read_text(path)) if path.exists() else {}


def save_expected(course: Course, lesson: Lesson, outputs: Outputs) -> bool:
    """Write a lesson's expected outputs; return whether the file changed."""
    path = expected_path(course, lesson)
    text = json.dumps(outputs, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    if (path.read_text(encoding="utf-8") if path.exists() else "{}\n") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, text)
    return True


def cells_to_compare(nb: NotebookNode) -> list[NotebookNode]:
    """Return the code cells tagged ``nbval-check-output``, whose outputs are compared."""
    return [c for c in nb.cells if c.cell_type == "code" and CHECK_OUTPUT in tags(c)]


def with_expected(nb: NotebookNode, outputs: Outputs) -> NotebookNode:
    """Return a copy of a notebook that contains the expected outputs, for nbval to compare with a run.

    nbval compares nothing in a cell without an execution count, so these cells get the count 1.
    """
    nb = copy.deepcopy(nb)
    for cell in cells_to_compare(nb):
        if outputs.get(cell.id):
            cell.outputs = nbformat.from_dict(outputs[cell.id])
            cell.execution_count = 1
    return nb


def outputs_to_compare(done: NotebookNode) -> Outputs:
    """Return the outputs to compare in an executed notebook, by cell id, without run-dependent fields.

    Raises
    ------
    AuthoringError
        If a cell printed nothing, or what cannot be compared.
    """
    kept = {}
    for cell in cells_to_compare(done):
        kept[cell.id] = _stable(cell.outputs)
        faults = [fault for output in kept[cell.id] if (fault := uncomparable(output))]
        if faults or not kept[cell.id]:
            raise AuthoringError(
                f"cell {cell.id} is to be compared but gave {[*faults, 'no output'][0]}: "
                f"print text there, or remove its tag {CHECK_OUTPUT}"
            )
    return kept


def uncomparable(output: Mapping[str, Any]) -> str | None:
    """Return what in an output cannot be compared between machines, such as a picture; None if nothing."""
    if output["output_type"] == "error":
        return f"an error ({output.get('ename')})"
    if output["output_type"] == "stream":
        return "text on stderr" if output.get("name") == "stderr" else None
    other = sorted(set(output.get("data", {})) - COMPARABLE)
    return f"an output of type {other[0]}" if other else None


def output_problems(nb: NotebookNode, outputs: Outputs, file: str) -> Iterator[Problem]:
    """Yield a problem for each compared cell without a stored output, and for each output without a cell."""
    wanted = [cell.get("id", "") for cell in cells_to_compare(nb)]
    for ident in wanted:
        if not outputs.get(ident):
            what = "is to be compared but no output is stored, so nothing would be compared"
            yield Problem(file, ident, what, RUN)
    for ident in sorted(set(outputs) - set(wanted)):
        what = f"an output is stored for it, but no cell of that id is tagged {CHECK_OUTPUT}"
        yield Problem(file, ident, what, RUN)


def _stable(outputs: list[NotebookNode]) -> list[dict[str, Any]]:
    """Return outputs without metadata and execution counts, with consecutive chunks of one stream joined."""
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
