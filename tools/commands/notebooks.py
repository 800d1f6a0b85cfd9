"""``python -m course_utils notebooks``: check, mend and run the lessons' notebooks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nbformat import NotebookNode

from course_utils import bar, exercises
from course_utils.course import Course, Lesson, load_course
from course_utils.files import write
from course_utils.set_aside import is_dated
from course_utils.stubs import AuthoringError
from tools.authoring import claims, fidelity, guide, lesson_map, outputs, templates
from tools.authoring.copies import LINE
from tools.authoring.form import Problem, dumps, parse, read
from tools.authoring.lesson import expected_outputs, mend, problems
from tools.authoring.pages import page_problems, stale_pages
from tools.commands import fail

NEEDS = ("nbformat", "nbclient", "ruff", "tqdm", "yaml")

ExercisesOf = Callable[[str], Iterable[exercises.Exercise]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--check", action="store_true", help="say what is wrong, file by file, cell by cell"
    )
    action.add_argument(
        "--fix", action="store_true", help="write the canonical form, generated cells and pages"
    )
    action.add_argument(
        "--run", action="store_true", help="run on the CPU and store the outputs that are compared"
    )
    parser.add_argument(
        "files", nargs="*", help="notebooks; without any, all that course.yml lists as ready"
    )


def main(args: argparse.Namespace) -> int:
    """Do what was asked; 0 if nothing is wrong, else 1."""
    action = check if args.check else fix if args.fix else run
    try:
        return action(load_course(), args.files)
    except ValueError as error:
        return fail(error, 1)


def check(
    course: Course, files: Iterable[str] = (), exercises_of: ExercisesOf = exercises.lesson
) -> int:
    """Print one line a problem; 0 if there is none."""
    files = list(files)
    found = []
    if not files:
        found = [*_strangers(course), *page_problems(course)]
        found += claims.problems(course.path.parent.parent)
        found += fidelity.problems(course.path.parent.parent)
        found += templates.problems(course)
        found += lesson_map.problems(course)
        found += guide.problems(course)
    chosen = _chosen(course, files)
    for lesson, path in chosen:
        try:
            text = _text(path)
            found += problems(text, course, lesson, exercises_of(lesson.id))
        except AuthoringError as error:
            found.append(_unreadable(lesson, error))
    for problem in found:
        print(problem)
    print(f"{len(chosen)} notebooks read, {len(found)} problems.")
    return 1 if found else 0


def fix(
    course: Course, files: Iterable[str] = (), exercises_of: ExercisesOf = exercises.lesson
) -> int:
    """Write every lesson in canonical form and renew the pages; 1 if something needs a hand."""
    left: list[Problem] = []
    for lesson, path in _chosen(course, files):
        try:
            text = _text(path)
            known = exercises_of(lesson.id)
            before = problems(text, course, lesson, known)
            mended = dumps(mend(parse(text), course, lesson, known))
            after = before if mended == text else problems(mended, course, lesson, known)
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
    stale, broken = stale_pages(course)
    left += broken
    for page, text in stale.items():
        write(course.path.parent.parent / page, text)
        print(f"{page}: generated parts renewed")
    for file in templates.renew(course):
        print(f"{file}: made from its program")
    for file in claims.renew(course.path.parent.parent):
        print(f"{file}: renewed from the claims and the records")
    for file in fidelity.renew(course.path.parent.parent):
        print(f"{file}: renewed from what was modelled")
    for file in lesson_map.renew(course):
        print(f"{file}: renewed from course.yml")
    for file in guide.renew(course):
        print(f"{file}: renewed from the exercises")
    if left:
        print("Left to mend by hand:")
        for problem in left:
            print(f"  {problem}")
    return 1 if left else 0


def run(course: Course, files: Iterable[str] = ()) -> int:
    """Run lessons as shipped and store the outputs that are compared; where a lesson fails, what is stored stays."""
    failed = 0
    for lesson, path in _chosen(course, files):
        start = time.monotonic()
        try:
            nb = read(path)
            found = _outputs(lesson.file, nb, path.parent)
        except AuthoringError as error:
            failed += 1
            print(f"{lesson.file}: {error}; its stored outputs are unchanged")
            continue
        changed = outputs.store(course, lesson, found)
        minutes = (time.monotonic() - start) / 60
        ran = sum(cell.cell_type == "code" for cell in nb.cells)
        state = "written" if changed else "unchanged"
        print(
            f"{lesson.file}: {ran} code cells in {minutes:.2f} min, {len(found)} outputs kept, {state}"
        )
    return 1 if failed else 0


def _chosen(course: Course, files: Iterable[str]) -> list[tuple[Lesson, Path]]:
    folder = course.path.parent
    files = list(files)
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


def _strangers(course: Course) -> list[Problem]:
    known = {lesson.file for lesson in course.lessons}
    return [
        Problem(path.name, "", "is not in course.yml", "add it there, or move it out of notebooks/")
        for path in sorted(course.path.parent.glob("*.ipynb"))
        if path.name not in known and not is_dated(path.name)
    ]


def _unreadable(lesson: Lesson, error: AuthoringError) -> Problem:
    what = str(error).removeprefix(f"{lesson.file} ")
    return Problem(lesson.file, "", what, "see CONTRIBUTING.md")


def _text(path: Path) -> str:
    read(path)  # one clear sentence where it is missing or no notebook
    return path.read_text(encoding="utf-8")


def _outputs(file: str, nb: NotebookNode, folder: Path) -> outputs.Outputs:
    with bar(total=len(nb.cells), desc=file, bar_format=LINE, leave=False) as progress:
        return expected_outputs(nb, folder, lambda cell: progress.update(cell - progress.n))
