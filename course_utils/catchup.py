"""Catch up on a lesson: run the cells above a section, after a late start or a lost session."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from course_language import _

from . import predictions, progress_file, storage
from .course import CourseFileError, Lesson, fresh_notebook, load_course
from .exercises import Exercise, LessonExercises
from .exercises import lesson as exercises_of
from .stubs import exercise_id, find_stub, replace_stub, solution
from .this_machine import ipython_shell
from .tqdm_bar import bar

if TYPE_CHECKING:
    from nbformat import NotebookNode

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SHOWN = 12  # how many variable names are listed at most


class CatchUpError(Exception):
    """Catching up is not possible, or failed in a cell; the message is one sentence."""


class _Node(dict[str, Any]):
    """A JSON object with its members as attributes, like a NotebookNode; importing nbformat takes seconds."""

    __getattr__ = dict.__getitem__


@dataclass(frozen=True)
class _Section:
    """A section of a lesson: its number (0: before the first heading), its heading, its cell's index."""

    number: int
    heading: str
    cell: int

    def __str__(self) -> str:
        return (
            _("section {number}, “{heading}”").format(number=self.number, heading=self.heading)
            if self.number
            else _("the first cells")
        )


def catch_up(lesson_id: str, section: int | str | None = None) -> None:
    """Run the lesson's cells above a section in this notebook's namespace, so that you can continue there.

    The cells are those of the course, not the ones you edited, and their output is hidden. Your answer to an
    exercise is kept if it is right in this session; the others get the course's solution, and do not count as
    solved. Files that exist are not overwritten by ``%%writefile``. Problems are printed, not raised.

    Parameters
    ----------
    lesson_id
        The lesson's number, such as ``"05"``.
    section
        The section to continue with: its number, or a word of its heading. By default the one with the
        first exercise that you have not solved yet.

    Examples
    --------
    >>> catch_up("03", "3 am")
    """
    try:
        lesson = _find_lesson(lesson_id)
        if (shell := ipython_shell()) is None:
            raise CatchUpError(_("catch_up works in a notebook: run it in a cell of the lesson."))
        nb, exercises = _read_fresh_notebook(lesson), exercises_of(lesson.id)
        sections = _find_sections(nb)
        target = _target_section(nb, sections, section, exercises)
        names = _run_cells_above(nb, sections, target, exercises, shell)
    except CatchUpError as problem:
        print(problem)
        return
    print(_("Ready: {made}.").format(made=_name_list(names)))
    print(_("Go on with {goal} of lesson {id}.").format(goal=target, id=lesson.id))
    if "keep(" in "".join(cell.source for cell in nb.cells):
        print(_describe_newest_checkpoint(storage.checkpoint_dir(lesson.id)))


def way_back(exercises: LessonExercises) -> str:
    """Return the sentence on the call that brings a learner back to where they were in a lesson.

    It is "" if they checked no answer yet, or solved all, or if the lesson's own copy cannot be read.
    """
    ids = {exercise.id for exercise in exercises}
    tried = {attempt.exercise for attempt in progress_file.attempts()}
    if not ids & tried or ids <= progress_file.solved():
        return ""
    try:
        nb = _read_fresh_notebook(_find_lesson(exercises.lesson_id))
    except CatchUpError:
        return ""
    return _('course_utils.catch_up("{id}") brings you back to {section}.').format(
        id=exercises.lesson_id, section=_first_unsolved(nb, _find_sections(nb), exercises)
    )


def _find_lesson(lesson_id: str) -> Lesson:
    """Return a lesson that has a notebook; `CatchUpError` if there is none of this id."""
    try:
        return load_course().chosen([lesson_id])[0]
    except LookupError as error:
        raise CatchUpError(str(error)) from None


def _read_fresh_notebook(lesson: Lesson) -> NotebookNode:
    """Return a lesson's notebook as the course ships it; `CatchUpError` if that is not possible."""
    try:
        nb = json.loads(fresh_notebook(lesson), object_hook=_Node)
    except CourseFileError as error:
        raise CatchUpError(_("Catching up is not possible: {error}.").format(error=error)) from None
    for cell in nb.cells:
        cell["source"] = "".join(cell.source)
    return nb


def _find_sections(nb: NotebookNode) -> list[_Section]:
    """Return a notebook's sections in order: the cells above the first heading, then each ``##`` heading."""
    sections = [_Section(0, "", 0)]
    for i, cell in enumerate(nb.cells):
        if cell.cell_type == "markdown":
            prose = _FENCED.sub("", cell.source)
            for heading in re.findall(r"^## +(.*?)[ #]*$", prose, re.MULTILINE):
                sections.append(_Section(len(sections), heading, i))
    return sections


def _target_section(
    nb: NotebookNode, sections: list[_Section], wanted: int | str | None, exercises: LessonExercises
) -> _Section:
    """Return the section of this number, or word of its heading, or with None that of `_first_unsolved`.

    `CatchUpError`, with a list, if none or several fit.
    """
    if wanted is None:
        return _first_unsolved(nb, sections, exercises)
    text = str(wanted).strip().lower()
    matching = [s for s in sections[1:] if text == str(s.number)]
    matching = matching or [s for s in sections[1:] if text and text in s.heading.lower()]
    if len(matching) == 1:
        return matching[0]
    listed = "\n".join(f"{s.number:4} {s.heading}" for s in matching or sections[1:])
    why = _("several sections fit") if matching else _("no section fits")
    raise CatchUpError(
        _("{wanted!r}: {why}. Choose a number, or a word of one heading only:\n{listed}").format(
            wanted=wanted, why=why, listed=listed
        )
    )


def _first_unsolved(nb: NotebookNode, sections: list[_Section], exercises: LessonExercises) -> _Section:
    """Return the section of the first exercise that is not solved in the progress file; else the summary."""
    solved = progress_file.solved()
    open_ids = {exercise.id for exercise in exercises} - solved
    for i, cell in enumerate(nb.cells):
        if exercise_id(cell) in open_ids:
            return [s for s in sections if s.cell <= i][-1]
    return next((s for s in sections if s.heading == _("Summary")), sections[-1])


def _run_cells_above(
    nb: NotebookNode,
    sections: list[_Section],
    target: _Section,
    exercises: LessonExercises,
    shell: Any,
) -> list[str]:
    """Run the code cells above a section; return the new variables that the cells below use."""
    cells = [(i, c) for i, c in enumerate(nb.cells[: target.cell]) if c.cell_type == "code"]
    before = dict(shell.user_ns)
    with _isolated_progress():
        for i, cell in bar(
            cells, desc=_("catching up on lesson {lesson_id}").format(lesson_id=exercises.lesson_id)
        ):
            source = _source_to_run(cell, exercises, shell)
            if _writes_existing_file(source):
                continue
            if (problem := _run_quietly(source, shell)) is not None:
                section = [s for s in sections if s.cell <= i][-1]
                message = next(iter(str(problem).splitlines()), "")
                raise CatchUpError(
                    _(
                        "Catching up ended in {place}, with {type}: {message} "
                        "What the cells above it make is there; run the rest by hand."
                    ).format(place=section, type=type(problem).__name__, message=message)
                )
    below = [cell.source for cell in nb.cells[target.cell :] if cell.cell_type == "code"]
    wanted = set(re.findall(r"\w+", "\n".join(below))) - {"_", "clone", "ex"}  # the set-up cells'
    return [
        name
        for name, value in shell.user_ns.items()
        if name in wanted and before.get(name) is not value and _is_defined_in_notebook(value, shell)
    ]


def _source_to_run(cell: NotebookNode, exercises: LessonExercises, shell: Any) -> str:
    """Return a cell's source, with an exercise's stub replaced by the solution, or removed if solved."""
    exercises_by_id: dict[str, Exercise] = {exercise.id: exercise for exercise in exercises}
    exercise = exercises_by_id.get(exercise_id(cell) or "")
    if exercise is None:
        return cell.source
    stub = find_stub(cell, exercise)
    answer = shell.user_ns.get(stub.name)
    solved = answer is not None and exercise.result(answer).outcome == "right"
    return replace_stub(cell.source, stub, "" if solved else solution(exercise, stub))


def _writes_existing_file(source: str) -> bool:
    """Return whether a cell is a ``%%writefile`` (without ``-a``) of a file that exists."""
    written = re.match(r"%%writefile\s+(?!-a)(\S+)", source)
    return written is not None and Path(written[1]).exists()


def _run_quietly(source: str, shell: Any) -> Exception | None:
    """Run a cell's source (with magics) in the notebook without output; return its exception, or None."""
    from IPython.utils.capture import capture_output

    plt = sys.modules.get("matplotlib.pyplot")
    figures = set(plt.get_fignums()) if plt else set()
    code = shell.transform_cell(source)
    name = shell.compile.cache(code, 0, raw_code=source)  # inspect.getsource finds it there
    try:
        with capture_output():
            exec(compile(code, name, "exec", dont_inherit=True), shell.user_ns)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a lesson's cell may raise anything)
        return error
    finally:
        if plt := sys.modules.get("matplotlib.pyplot"):
            for number in set(plt.get_fignums()) - figures:
                plt.close(number)
    return None


@contextmanager
def _isolated_progress() -> Iterator[None]:
    """During the block, write progress to a temporary file; on exit, restore the learner's predictions."""
    chosen = os.environ.get("COURSE_PROGRESS")
    kept = dict(predictions.all_predictions)
    predictions.all_predictions.clear()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["COURSE_PROGRESS"] = str(Path(folder) / "progress.jsonl")
        try:
            yield
        finally:
            del os.environ["COURSE_PROGRESS"]
            if chosen is not None:
                os.environ["COURSE_PROGRESS"] = chosen
            for prediction in predictions.all_predictions.values():
                prediction.revealed = False
            predictions.all_predictions.update(kept)


def _is_defined_in_notebook(value: object, shell: Any) -> bool:
    """Return whether a value is defined in the notebook: no module, and no imported function or class."""
    if isinstance(value, ModuleType):
        return False
    notebook_module = shell.user_ns["__name__"]
    return not callable(value) or getattr(value, "__module__", notebook_module) == notebook_module


def _name_list(names: list[str]) -> str:
    """Return the first names, comma-separated, and how many more there are."""
    more = _(" and {more} more").format(more=len(names) - SHOWN) if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else _("the imports")


def _describe_newest_checkpoint(folder: Path) -> str:
    """Return a sentence on the newest ``.pt`` file in a folder, and how old it is."""
    files = [path for path in folder.rglob("*.pt") if path.is_file()]
    if not files:
        return _("No checkpoint is in {folder} yet.").format(folder=folder)
    newest = max(files, key=lambda path: path.stat().st_mtime)
    minutes = max(0, time.time() - newest.stat().st_mtime) / 60
    ago = (
        _("{minutes:.0f} minutes").format(minutes=minutes)
        if minutes < 120
        else _("{minutes:.0f} hours").format(minutes=minutes / 60)
    )
    return _("Checkpoint: {newest}, saved {ago} ago.").format(newest=newest, ago=ago)
