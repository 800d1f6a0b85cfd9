"""A whole lesson: everything that is wrong with it, the mended notebook, the executed one."""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.validator import iter_validate

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
from tools.authoring.glossary import glossary_problems, linked
from tools.authoring.short_path import path_problems

CELL_SECONDS = 600


def problems(
    text: str, course: Course, lesson: Lesson, exercises: Iterable[Exercise]
) -> list[Problem]:
    """List what is wrong with a notebook, given its text on disk."""
    nb = parse(text)
    file = lesson.file
    made = canonical(regenerate(nb, course, lesson, exercises), lesson.id)
    found = [*form_problems(nb, file), *differences(nb, made, file)]
    found += anatomy_problems(nb, exercises, file)
    found += glossary_problems(nb, course, lesson)
    found += path_problems(nb, lesson, file)
    found += outputs.output_problems(nb, outputs.stored(course, lesson), file)
    for error in iter_validate(made, version=4, version_minor=5):
        what = f"breaks the notebook format: {error.message[:120]}"
        found.append(Problem(file, "", what, "correct it in an editor of text"))
    if not found and dumps(linked(made, course, lesson)) != text:
        what = "is not written as it should be (order of keys, indent, end of file)"
        found.append(Problem(file, "", what, FIX))
    return found


def mend(
    nb: NotebookNode, course: Course, lesson: Lesson, exercises: Iterable[Exercise]
) -> NotebookNode:
    """Return a copy in canonical form with fresh generated cells and links to the glossary.

    No hand-written cell is lost.
    """
    made = canonical(regenerate(nb, course, lesson, exercises), lesson.id)
    return linked(made, course, lesson)


def expected_outputs(
    nb: NotebookNode, folder: Path, on_cell: Callable[[int], None] = lambda index: None
) -> outputs.Outputs:
    """Run a notebook in a clean kernel on the CPU, as `executed` does; return the outputs that are to be compared.

    Raises
    ------
    AuthoringError
        If a cell fails, takes too long, or prints what cannot be compared.
    """
    with tempfile.TemporaryDirectory() as scratch:
        progress = str(Path(scratch) / "progress.jsonl")
        env = {**os.environ, "COURSE_DEVICE": "cpu", "COURSE_PROGRESS": progress}
        return outputs.of_run(executed(nb, folder, env, on_cell))


def executed(
    nb: NotebookNode,
    folder: Path,
    env: Mapping[str, str],
    on_cell: Callable[[int], None] = lambda index: None,
) -> NotebookNode:
    """Return a copy of a notebook with the outputs of a run in a kernel of its own.

    Parameters
    ----------
    folder : Path
        Where the kernel starts.
    env : Mapping
        The kernel's environment.
    on_cell : callable
        Told the position of each cell as it starts.

    Raises
    ------
    AuthoringError
        If a cell fails or takes too long.
    """
    done = copy.deepcopy(nb)
    running = 0

    def started(cell: NotebookNode, cell_index: int) -> None:
        nonlocal running
        running = cell_index
        on_cell(cell_index)

    client = NotebookClient(
        done,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        on_cell_start=started,
    )
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
