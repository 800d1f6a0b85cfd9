"""``reset``: replace a lesson's notebook by a fresh copy, and keep the learner's under another name."""

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
    """Add the arguments of `reset`."""
    parser.add_argument("lessons", nargs="+", metavar="LESSON", help=_("such as 03"))


def main(args: argparse.Namespace) -> int:
    """Reset the lessons in ``args.lessons``; none of them if one has no fresh notebook.

    Returns
    -------
    int
        0 if all are fresh, 1 if a file cannot be read or written, 2 if there is no such lesson.
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
    """Return the lesson of an argument, such as ``"3"`` or ``"03"``; LookupError if it has no notebook."""
    lesson = course.lesson(word.zfill(2) if word else word)
    if lesson.planned:
        raise LookupError(_("lesson {id} has no notebook yet").format(id=lesson.id))
    return lesson


def _folder(course: Course) -> Path:
    """Return the learner's notebooks' folder: the clone's or the bundle's, else the working directory."""
    installed = Path(course_utils.__file__).parent
    return Path.cwd() if course.path.parent == installed else course.path.parent.parent / notebooks()


def _reset(path: Path, text: str) -> bool:
    """Write a fresh notebook, after renaming an edited one; return whether the file changed."""
    fresh = text.encode()
    if path.is_file() and path.read_bytes() == fresh:
        print(_("{path} is as the course ships it: nothing to do.").format(path=path.name))
        return False
    with files.replacing(path) as temporary:
        temporary.write_bytes(fresh)
        kept_note = (
            _(" Yours is kept as {set_aside}.").format(set_aside=set_aside(path).name)
            if path.exists()
            else ""
        )
    print(_("{path} is fresh.{kept}").format(path=path.name, kept=kept_note))
    return True


def _sentence(text: str) -> str:
    """Return a message with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}."
