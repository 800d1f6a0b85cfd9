"""``reset``: put a fresh copy of a lesson in place, and keep the learner's beside it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import course_utils
from course_language import _, notebooks
from course_utils import files
from course_utils.course import Course, CourseFileError, Lesson, fresh_notebook, load_course
from course_utils.set_aside import RELOAD, set_aside

NEEDS = ("yaml",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("lessons", nargs="+", metavar="LESSON", help=_("such as 03"))


def main(args: argparse.Namespace) -> int:
    """Reset every lesson named, or none of them where one cannot be.

    Returns
    -------
    int
        0 where all are fresh, 1 where a file cannot be read or written, 2 for a lesson that is none.
    """
    try:
        course = load_course()
        lessons = dict.fromkeys(_lesson(course, word) for word in args.lessons)
    except (CourseFileError, LookupError) as error:
        print(_sentence(error.args[0]), file=sys.stderr)
        return 2
    try:
        texts = {lesson: fresh_notebook(lesson) for lesson in lessons}
        changed = [_reset(_folder(course) / lesson.file, text) for lesson, text in texts.items()]
    except CourseFileError as error:
        print(_sentence(str(error)), file=sys.stderr)
        return 1
    except OSError as error:
        print(
            _(
                "{filename} cannot be written ({strerror}): see to that, then call this "
                "again; nothing of yours is lost."
            ).format(filename=error.filename, strerror=error.strerror),
            file=sys.stderr,
        )
        return 1
    if any(changed):
        print(_("Your progress in the exercises is kept. {reload}").format(reload=RELOAD))
    return 0


def _lesson(course: Course, word: str) -> Lesson:
    lesson = course.lesson(word.zfill(2) if word else word)
    if lesson.planned:
        raise LookupError(_("lesson {id} has no notebook yet").format(id=lesson.id))
    return lesson


def _folder(course: Course) -> Path:
    """Return where the learner's notebooks are: in a clone or a bundle beside course.yml."""
    installed = Path(course_utils.__file__).parent
    return Path.cwd() if course.path.parent == installed else course.path.parent.parent / notebooks()


def _reset(path: Path, text: str) -> bool:
    """Write a fresh notebook; return whether that changed anything."""
    fresh = text.encode()
    if path.is_file() and path.read_bytes() == fresh:
        print(_("{path} is as the course ships it: nothing to do.").format(path=path.name))
        return False
    with files.replacing(path) as new:
        new.write_bytes(fresh)
        kept = (
            _(" Yours is kept as {set_aside}.").format(set_aside=set_aside(path).name)
            if path.exists()
            else ""
        )
    print(_("{path} is fresh.{kept}").format(path=path.name, kept=kept))
    return True


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:].rstrip('.')}."
