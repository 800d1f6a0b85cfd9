"""A lesson's notebook as a whole: its canonical text, its problems, and its execution."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.validator import iter_validate

from course_utils import bar
from course_utils.course import Course, Lesson
from course_utils.exercises import Exercise
from course_utils.stubs import AuthoringError
from tools.authoring import outputs
from tools.authoring.anatomy import anatomy_problems
from tools.authoring.cells import regenerate
from tools.authoring.form import (
    FIX,
    Problem,
    canonical,
    cell_name,
    differences,
    dumps,
    form_problems,
    parse,
)
from tools.authoring.short_path import path_problems

CELL_SECONDS = 600
PROGRESS = "{desc}: cell {n_fmt} of {total_fmt}, {elapsed}"


def review(
    text: str, course: Course, lesson: Lesson, exercises: Iterable[Exercise]
) -> tuple[str, list[Problem]]:
    """Return the text that a notebook should have, and the problems of the text that it has.

    The former is in canonical form with its generated cells created again and all other cells kept.
    """
    nb = parse(text)
    mended = canonical(regenerate(nb, course, lesson, exercises), lesson.id)
    file, fresh = lesson.file, dumps(mended)
    problems = [*form_problems(nb, file), *differences(nb, mended, file)]
    problems += anatomy_problems(nb, exercises, file)
    problems += path_problems(nb, lesson, file)
    problems += outputs.output_problems(nb, outputs.load_expected(course, lesson), file)
    for error in iter_validate(mended, version=4, version_minor=5):
        what = f"breaks the notebook format: {error.message[:120]}"
        problems.append(Problem(file, "", what, "correct it in an editor of text"))
    if not problems and fresh != text:
        what = "is not written as it should be (order of cells and keys, indent, end of file)"
        problems.append(Problem(file, "", what, FIX))
    return fresh, problems


def expected_outputs(nb: NotebookNode, folder: Path, name: str = "") -> outputs.Outputs:
    """Execute a notebook in a new kernel on the CPU; return the outputs of the cells to compare, by cell id.

    ``folder`` and ``name`` are as in `executed`.

    Raises
    ------
    AuthoringError
        If a cell fails, takes too long, or prints what cannot be compared.
    """
    with tempfile.TemporaryDirectory() as scratch:
        progress = str(Path(scratch) / "progress.jsonl")
        env = {**os.environ, "COURSE_DEVICE": "cpu", "COURSE_PROGRESS": progress}
        return outputs.outputs_to_compare(executed(nb, folder, env, name))


def executed(nb: NotebookNode, folder: Path, env: Mapping[str, str], name: str) -> NotebookNode:
    """Execute a copy of a notebook in a new kernel and return it with its outputs.

    Parameters
    ----------
    folder : Path
        The kernel's working directory.
    env : Mapping
        The kernel's environment variables.
    name : str
        The label of the progress bar.

    Raises
    ------
    AuthoringError
        If a cell fails, takes more than `CELL_SECONDS`, or the kernel dies; the message names the cell.
    """
    done = copy.deepcopy(nb)
    running = 0

    def on_cell_start(cell: NotebookNode, cell_index: int) -> None:
        """Store the index of the cell that starts, and advance the progress bar."""
        nonlocal running
        running = cell_index
        progress.update(cell_index - progress.n)

    client = NotebookClient(
        done,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=on_cell_start,
    )
    with bar(total=len(nb.cells), desc=name, bar_format=PROGRESS, leave=False) as progress:
        try:
            client.execute(env=dict(env))
            return done
        except CellExecutionError as error:
            fault = f"cell {cell_name(nb, running)} raised {error.ename}: {error.evalue}"
        except CellTimeoutError:
            fault = f"cell {cell_name(nb, running)} took more than {CELL_SECONDS} s"
        except DeadKernelError:
            fault = f"the kernel died in cell {cell_name(nb, running)}"
    raise AuthoringError(fault)
