"""``answers``: the lessons with every exercise solved, and what to say of each wrong answer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tools.commands.lesson_copies import add_lesson_arguments, write_lessons

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from course_utils.course import Lesson
    from course_utils.exercises import Exercise

NEEDS = ("torch", "yaml", "nbformat")

NOTE = """\
> **Answers, for instructors.** Every exercise below is solved, and under each stand the misconceptions \
that its
> check knows. Made from the course by `answers`: change nothing here, make it anew."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_lesson_arguments(parser, "*", "lessons' numbers; without any, all", "answers")


def main(args: argparse.Namespace) -> int:
    """Write one notebook a lesson; 1 where one cannot be written, 2 for a lesson that does not exist."""
    return write_lessons(args, "answers", answered)


def answered(lesson: Lesson) -> NotebookNode:
    """Return a lesson with its references in place, and notes for the instructor below each."""
    import nbformat

    from course_utils.course import fresh_notebook
    from course_utils.exercises import lesson as exercises_of
    from course_utils.stubs import exercise_id
    from tools.authoring.form import parse
    from tools.authoring.solve import solved

    known = {exercise.id: exercise for exercise in exercises_of(lesson.id)}
    nb = solved(parse(fresh_notebook(lesson)), known.values())
    nb.cells[0].source += f"\n\n{NOTE}"
    cells = []
    for cell in nb.cells:
        cells.append(cell)
        if "exercise" in cell.metadata.get("tags", ()):
            exercise = known[exercise_id(cell)]
            text = instructors_note(exercise)
            cells.append(nbformat.v4.new_markdown_cell(text, id=f"note-{exercise.slug}"))
    nb.cells = cells
    return nb


def instructors_note(exercise: Exercise) -> str:
    """Return the hints of an exercise, and what each of its diagnoses tells a learner, as Markdown."""
    hints = "\n".join(f"{i}. {hint}" for i, hint in enumerate(exercise.hints, 1))
    told = "\n".join(f"- `{name}`: {text}" for name, text in exercise.diagnoses.items())
    return (
        f"**For the instructor: {exercise.id}**, about {exercise.minutes} minutes. {exercise.why}\n\n"
        f"Hints, in the order the learner gets them:\n\n{hints}\n\n"
        f"What the check recognises, and what it says:\n\n{told}"
    )
