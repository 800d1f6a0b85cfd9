"""``slides``: a lesson as one page of slides, or as a notebook for a live talk."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from course_utils import files
from tools.commands import refuse

if TYPE_CHECKING:
    from course_utils.course import Course, Lesson

NEEDS = ("torch", "yaml", "nbformat", "nbclient", "nbconvert", "ruff", "tqdm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "lessons", nargs="+", metavar="LESSON", help="a lesson's number, such as 01"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("slides"), metavar="FOLDER", help="default: slides"
    )
    parser.add_argument(
        "--live",
        action="store_true",
        help="a notebook for jupyterlab-rise instead: its cells are run during the talk",
    )
    parser.add_argument(
        "--device", default="", help="run the lesson on this device (cpu, sim, cuda, ...)"
    )
    parser.add_argument(
        "--reveal", type=Path, metavar="FOLDER", help="reveal.js, as npm unpacks it"
    )


def main(args: argparse.Namespace) -> int:
    """Write one file a lesson.

    Returns
    -------
    int
        0 when all are written; 1 where a lesson fails, reveal.js is missing or a file cannot be written; 2
        for a lesson that does not exist.
    """
    from course_utils.course import load_course
    from course_utils.stubs import AuthoringError
    from tools.authoring.slides import reveal_folder

    course = load_course()
    try:
        lessons = course.chosen(args.lessons)
    except LookupError as error:
        return refuse(error, 2)
    try:
        reveal = None if args.live else reveal_folder(args.reveal)
        args.output.mkdir(parents=True, exist_ok=True)
        if reveal is None:
            _live(lessons, args.output)
        else:
            _pages(course, lessons, args.output, args.device, reveal)
    except AuthoringError as error:
        return refuse(f"{error}.", 1)
    except OSError as error:
        return refuse(f"{args.output} cannot be written ({error.strerror}).", 1)
    return 0


def _pages(
    course: Course, lessons: Sequence[Lesson], folder: Path, device: str, reveal: Path
) -> None:
    """Run each lesson, or take its kept copy, and write its slides."""
    from tools.authoring.cells import label
    from tools.authoring.copies import executed_copies
    from tools.authoring.slides import slides_page

    for lesson in lessons:
        (nb,) = executed_copies(course, [lesson], device).values()
        path = folder / f"{Path(lesson.file).stem}.slides.html"
        files.write(path, slides_page(nb, label(lesson), reveal))
        print(f"{path}: open it in a browser; S shows the notes, F fills the screen.")


def _live(lessons: Sequence[Lesson], folder: Path) -> None:
    from course_utils.course import fresh_notebook
    from tools.authoring.form import dumps, parse
    from tools.authoring.slides import for_slides

    for lesson in lessons:
        path = folder / f"{Path(lesson.file).stem}_live.ipynb"
        if path.exists():
            print(f"{path} is there already, perhaps with your notes: move it away for a new one.")
            continue
        nb = for_slides(parse(fresh_notebook(lesson)), live=True)
        files.write(path, dumps(nb))
        print(f"{path}: open it in JupyterLab with jupyterlab-rise, and press Alt+R.")
