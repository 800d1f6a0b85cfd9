"""Shared by ``slides`` and ``answers``: write a notebook for each lesson asked for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from course_language import _
from tools.commands import fail

if TYPE_CHECKING:
    from nbformat import NotebookNode

    from course_utils.course import Lesson


def add_lesson_arguments(parser: argparse.ArgumentParser, count: str, about: str, folder: str) -> None:
    """Add the options of a command that writes a notebook for each lesson.

    ``count`` is argparse's ``nargs``, ``about`` the help text, ``folder`` the default output folder.
    """
    parser.add_argument("lessons", nargs=count, metavar="LESSON", help=about)
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(folder),
        metavar="FOLDER",
        help=_("default: {folder}").format(folder=folder),
    )


def write_lessons(
    args: argparse.Namespace,
    suffix: str,
    convert: Callable[[Lesson], NotebookNode],
    written: str = "{path}",
    keep: str = "",
) -> int:
    """Write ``NN_name_SUFFIX.ipynb`` for each lesson asked for, or for all.

    Parameters
    ----------
    convert
        Returns a lesson's notebook to write.
    written
        The message for each file written, with ``{path}``.
    keep
        The message for a file that exists already, which is kept; if "", the file is replaced.

    Returns
    -------
    int
        0 if all are written; 1 if one cannot be read or written; 2 for a lesson that does not exist.
    """
    from course_utils import files
    from course_utils.course import load_course
    from tools.authoring.form import dumps

    course = load_course()
    try:
        for lesson in course.chosen(args.lessons) or course.ready:
            path = args.output / f"{Path(lesson.file).stem}_{suffix}.ipynb"
            if keep and path.exists():
                print(keep.format(path=path))
                continue
            args.output.mkdir(parents=True, exist_ok=True)
            files.write(path, dumps(convert(lesson)))
            print(written.format(path=path))
    except LookupError as error:
        return fail(error, 2)
    except ValueError as error:
        return fail(f"{error}.", 1)
    except OSError as error:
        return fail(
            _("{output} cannot be written ({strerror}).").format(output=args.output, strerror=error.strerror),
            1,
        )
    return 0
