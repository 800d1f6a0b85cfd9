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
    """Add the command's options to the parser."""
    add_lesson_arguments(parser, "*", "lessons' numbers; without any, all", "answers")


def main(args: argparse.Namespace) -> int:
    """Write a solved notebook for each lesson; return 1 if one cannot be written, 2 for an unknown lesson."""
    return write_lessons(args, "answers", answered)


def answered(lesson: Lesson) -> NotebookNode:
    """Return a lesson's notebook with reference solutions, and an instructor's note below each."""
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
    """Return an exercise's purpose, hints and diagnoses, as Markdown."""
    hints = "\n".join(f"{i}. {hint}" for i, hint in enumerate(exercise.hints, 1))
    diagnoses = "\n".join(f"- `{name}`: {text}" for name, text in exercise.diagnoses.items())
    return (
        f"**For the instructor: {exercise.id}**, about {exercise.minutes} minutes. {exercise.why}\n\n"
        f"Hints, in the order the learner gets them:\n\n{hints}\n\n"
        f"What the check recognises, and what it says:\n\n{diagnoses}"
    )
