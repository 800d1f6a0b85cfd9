"""``python -m course_utils notebooks``: check, mend and run the lessons' notebooks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from course_utils import exercises
from course_utils.course import Course, Lesson, load_course
from course_utils.files import write
from course_utils.set_aside import is_dated
from course_utils.stubs import AuthoringError
from tools.authoring import assistants, claims, fidelity, guide, outputs
from tools.authoring.form import FIX, Problem, read
from tools.authoring.lesson import expected_outputs, review
from tools.authoring.pages import Generated, generated_pages
from tools.commands import fail

NEEDS = ("nbformat", "nbclient", "ruff", "tqdm", "yaml")

ExercisesOf = Callable[[str], Iterable[exercises.Exercise]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to the parser."""
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", action="store_true", help="say what is wrong, file by file, cell by cell")
    action.add_argument(
        "--fix", action="store_true", help="write the canonical form, generated cells and pages"
    )
    action.add_argument(
        "--run", action="store_true", help="run on the CPU and store the outputs that are compared"
    )
    parser.add_argument("files", nargs="*", help="notebooks; without any, all that course.yml lists as ready")


def main(args: argparse.Namespace) -> int:
    """Run `check`, `fix` or `run`, as the options say; return 0 if nothing is wrong, else 1."""
    action = check if args.check else fix if args.fix else run
    try:
        return action(load_course(), args.files)
    except ValueError as error:
        return fail(error, 1)


def check(course: Course, files: Iterable[str] = (), exercises_of: ExercisesOf = exercises.lesson) -> int:
    """Print a line for each problem of the notebooks and generated files; return 1 if there is any.

    ``files`` are names of notebooks; without any, all ready lessons and the generated files are checked.
    """
    problems = []
    if not files:
        stale, problems = stale_files(course)
        problems += [Problem(file.path, "", "is out of date", FIX) for file in stale]
        problems += _unlisted(course)
    chosen = _chosen(course, files)
    for lesson, path in chosen:
        try:
            problems += review(_read_text(path), course, lesson, exercises_of(lesson.id))[1]
        except AuthoringError as error:
            problems.append(_unreadable(lesson, error))
    for problem in problems:
        print(problem)
    print(f"{len(chosen)} notebooks read, {len(problems)} problems.")
    return 1 if problems else 0


def fix(course: Course, files: Iterable[str] = (), exercises_of: ExercisesOf = exercises.lesson) -> int:
    """Write the lessons in canonical form and the stale generated files; return 1 if problems are left."""
    left: list[Problem] = []
    for lesson, path in _chosen(course, files):
        try:
            text, known = _read_text(path), exercises_of(lesson.id)
            mended, before = review(text, course, lesson, known)
            after = before if mended == text else review(mended, course, lesson, known)[1]
        except AuthoringError as error:
            left.append(_unreadable(lesson, error))
            continue
        left += after
        if mended == text:
            print(f"{lesson.file}: nothing to change")
            continue
        write(path, mended)
        print(f"{lesson.file}: written")
        for problem in before:
            if problem not in after:
                print(f"  mended: {problem.cell or 'notebook'}: {problem.what}")
    stale, broken = stale_files(course)
    left += broken
    for file in stale:
        file.write(course.path.parent.parent)
        print(f"{file.path}: renewed")
    if left:
        print("Left to mend by hand:")
        for problem in left:
            print(f"  {problem}")
    return 1 if left else 0


def run(course: Course, files: Iterable[str] = ()) -> int:
    """Execute lessons as shipped and store the outputs to compare; return 1 if one fails.

    A failed lesson's stored outputs stay as they are.
    """
    failed = 0
    for lesson, path in _chosen(course, files):
        start = time.monotonic()
        try:
            nb = read(path)
            printed = expected_outputs(nb, path.parent, lesson.file)
        except AuthoringError as error:
            failed += 1
            print(f"{lesson.file}: {error}; its stored outputs are unchanged")
            continue
        state = "written" if outputs.save_expected(course, lesson, printed) else "unchanged"
        minutes = (time.monotonic() - start) / 60
        ran = sum(cell.cell_type == "code" for cell in nb.cells)
        print(f"{lesson.file}: {ran} code cells in {minutes:.2f} min, {len(printed)} outputs kept, {state}")
    return 1 if failed else 0


def stale_files(course: Course) -> tuple[list[Generated], list[Problem]]:
    """Return the generated files that are out of date, and problems of pages missing or without markers."""
    root = course.path.parent.parent
    notes = Generated(guide.PAGE, lambda: guide.render(course, (root / guide.PAGE).read_text("utf-8")))
    stale, problems = [], []
    whole = [*assistants.generated(course), *claims.GENERATED, *fidelity.GENERATED, notes]
    for file in [*generated_pages(course), *whole]:
        try:
            if file.is_stale(root):
                stale.append(file)
        except FileNotFoundError:
            problems.append(Problem(file.path, "", "does not exist", "write it"))
        except AuthoringError as error:
            what = "has no place for a generated part"
            problems.append(Problem(file.path, "", what, str(error)))
    return stale, problems


def _chosen(course: Course, files: Iterable[str]) -> list[tuple[Lesson, Path]]:
    """Return the lessons of the given notebooks with their paths; all ready lessons if ``files`` is empty.

    Raises
    ------
    AuthoringError
        If a file is not a lesson of course.yml, or this is no clone.
    """
    folder = course.path.parent
    if not files:
        if not folder.joinpath("..", "pyproject.toml").is_file():
            raise AuthoringError("there is no clone here: run this from a clone of the course")
        return [(lesson, folder / lesson.file) for lesson in course.ready]
    by_file = {lesson.file: lesson for lesson in course.lessons}
    chosen = []
    for file in files:
        path = Path(file)
        if path.name not in by_file:
            raise AuthoringError(f"{file} is no lesson of course.yml: add it there first")
        chosen.append((by_file[path.name], path if path.exists() else folder / path.name))
    return chosen


def _unlisted(course: Course) -> list[Problem]:
    """Return a problem for each notebook that is not in course.yml."""
    known = {lesson.file for lesson in course.lessons}
    return [
        Problem(path.name, "", "is not in course.yml", "add it there, or move it out of notebooks/")
        for path in sorted(course.path.parent.glob("*.ipynb"))
        if path.name not in known and not is_dated(path.name)
    ]


def _unreadable(lesson: Lesson, error: AuthoringError) -> Problem:
    """Return the problem of a notebook that cannot be read."""
    what = str(error).removeprefix(f"{lesson.file} ")
    return Problem(lesson.file, "", what, "see CONTRIBUTING.md")


def _read_text(path: Path) -> str:
    """Return a notebook's text; AuthoringError if the file is missing or no notebook."""
    read(path)  # raises if it is missing or no notebook
    return path.read_text(encoding="utf-8")
