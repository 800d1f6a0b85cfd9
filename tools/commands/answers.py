"""``answers``: the lessons with every exercise solved, and what to say of each wrong answer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tools.commands import fail

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from course_utils.course import Lesson
    from course_utils.exercises import Exercise

NEEDS = ("torch", "yaml", "nbformat")

NOTE = """\
> **Answers, for instructors.** Every exercise below is solved, and under each stand the misconceptions that its
> check knows. Made from the course by `answers`: change nothing here, make it anew."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "lessons", nargs="*", metavar="LESSON", help="lessons' numbers; without any, all"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("answers"), metavar="FOLDER", help="default: answers"
    )


def main(args: argparse.Namespace) -> int:
    """Write one notebook a lesson.

    Returns
    -------
    int
        0 when all are written; 1 where one cannot be read or written; 2 for a lesson that does not exist.
    """
    from course_utils import files
    from course_utils.course import load_course
    from tools.authoring.form import dumps

    course = load_course()
    try:
        lessons = course.chosen(args.lessons) or course.ready
    except LookupError as error:
        return fail(error, 2)
    try:
        args.output.mkdir(parents=True, exist_ok=True)
        for lesson in lessons:
            path = args.output / f"{Path(lesson.file).stem}_answers.ipynb"
            files.write(path, dumps(answered(lesson)))
            print(path)
    except ValueError as error:
        return fail(f"{error}.", 1)
    except OSError as error:
        return fail(f"{args.output} cannot be written ({error.strerror}).", 1)
    return 0


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
