"""A lesson's session: `start`, which the set-up cell calls, and the table of lessons with the progress."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache

from course_language import _, ngettext

from . import progress_file
from .course import load_course
from .exercises import LessonExercises, lesson
from .show import Bundle, show, table
from .this_machine import ipython_shell, python_path, where

NEEDED = ("torch", "numpy", "matplotlib", "tqdm", "yaml")


def start(lesson_id: str) -> LessonExercises:
    """Do what `course_utils.start` does, in the language that is chosen already.

    Print that the lesson is ready, which device to expect, and how many exercises are solved. In a fresh
    kernel, name the way back to where the learner was; on Colab and Kaggle, the way to a GPU.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            _(
                "this notebook's Python ({executable}) has no {missing}. Close it and "
                "start the course with: python3 -m course_utils lab"
            ).format(executable=sys.executable, missing=", ".join(missing))
        )
    from . import devices, plots
    from .catchup import way_back

    plots.use_style()
    os.environ["PYTHONPATH"] = python_path()  # for the programs that a lesson starts
    devices.full_card = lesson_id == "00"
    exercises = lesson(lesson_id)
    print(_ready(exercises))
    if where() != "local":
        devices.no_gpu_notice()
    shell = ipython_shell()
    if shell is not None and "ex" not in shell.user_ns and (way := way_back(exercises)):
        print(way)
    return exercises


def _ready(exercises: LessonExercises) -> str:
    """Return the line that a lesson is ready, with the device to expect and how many exercises are solved."""
    from .devices import expected_device

    ids = {exercise.id for exercise in exercises}
    right = len(ids & progress_file.solved())
    count = ngettext("{right} of {total} exercise solved.", "{right} of {total} exercises solved.", len(ids))
    return _("Lesson {id} is ready. {device} {count}").format(
        id=exercises.lesson_id, device=expected_device(), count=count.format(right=right, total=len(ids))
    )


@cache
def remind_of_setup() -> None:
    """Print once that the set-up cell must run first, if ``ex`` is not defined in the notebook."""
    shell = ipython_shell()
    if shell is not None and "ex" not in shell.user_ns:
        print(
            _("Run the set-up cell at the top of the lesson first. It makes ex, which checks your answers.")
        )


def course_map() -> None:
    """Show a table of the lessons with the learner's progress in each."""
    solved = progress_file.solved()
    tried = {attempt.exercise for attempt in progress_file.attempts()}
    rows = []
    for entry in load_course().lessons:
        ids = [exercise.id for exercise in lesson(entry.id)]
        right = sum(i in solved for i in ids)
        state = (
            _("planned")
            if entry.planned
            else _("{right} of {n_ids} exercises").format(right=right, n_ids=len(ids))
        )
        if not entry.planned and right < len(ids) and any(i in tried for i in ids):
            state = _("{state}, begun").format(state=state)
        marks = "●" * right + "○" * (len(ids) - right)
        rows.append((entry.id, entry.title, _("{time} min").format(time=entry.time), marks, state))
    text, page = table(("", _("Lesson"), _("Time"), "", _("Your progress")), rows)
    note = _("Kept in {progress_file}, on this machine only.").format(
        progress_file=progress_file.progress_file()
    )
    if verdicts := progress_file.predictions().values():
        close = sum(verdict == "close" for verdict in verdicts)
        note = _("Predictions: {n_verdicts} made, {close} close. {where}").format(
            n_verdicts=len(verdicts), close=close, where=note
        )
    show(Bundle(text=f"{text}\n{note}", html=f"{page}<div style='opacity:.75'>{note}</div>"))
