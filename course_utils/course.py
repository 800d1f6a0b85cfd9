"""Read the table of contents, ``notebooks/course.yml``."""

from __future__ import annotations

import reprlib
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_language import _, notebooks

from . import files

_PACKAGE = Path(__file__).parent


class CourseFileError(ValueError):
    """The table of contents cannot be read; the message says where and why."""


@dataclass(frozen=True)
class Lesson:
    """One lesson of the table of contents, with its texts in the chosen language.

    ``file`` is the notebook's name. ``minutes`` is the time for the main part, and ``further`` that for the
    optional sections (*Further*). ``planned`` lessons have no notebook yet. ``short_path`` lists the sections
    for a learner in a hurry, each a dict: the heading, minutes, and the argument of ``catch_up`` before it.
    """

    id: str
    file: str
    title: str
    minutes: int
    question: str
    further: int = 0
    objectives: tuple[str, ...] = ()
    hardware: str = ""
    needs: tuple[str, ...] = ()
    planned: bool = False
    short_path: tuple[dict[str, Any], ...] = field(default=(), hash=False)

    @property
    def time(self) -> str:
        """The minutes of the main part, and of *Further* if there are any, as text: ``"75 + 30"``."""
        return f"{self.minutes} + {self.further}" if self.further else str(self.minutes)


@dataclass(frozen=True)
class Course:
    """The table of contents; ``path`` is the file that it was read from."""

    repository: str | None  # owner/name on GitHub; None if the course has no repository yet
    branch: str
    lessons: tuple[Lesson, ...]
    path: Path = field(compare=False)

    def page(self, path: str) -> str:
        """Return the link from a notebook to a page, a path relative to the repository's root.

        It is a URL on GitHub. If the course has no repository, it is a relative path from the working
        directory, which is taken for the notebook's.
        """
        home = f"https://github.com/{self.repository}/blob/{self.branch}/"
        beside = "../../" if Path("../course.yml").is_file() else "../"  # notebooks/zh/
        return (home if self.repository else beside) + path

    def lesson(self, lesson_id: str) -> Lesson:
        """Return the lesson of an id such as ``"01"``; KeyError, with the known ids, if there is none."""
        for lesson in self.lessons:
            if lesson.id == lesson_id:
                return lesson
        known = ", ".join(lesson.id for lesson in self.lessons)
        raise KeyError(
            _("there is no lesson {lesson_id!r}; the course has {known}").format(
                lesson_id=lesson_id, known=known
            )
        )

    def chosen(self, numbers: Iterable[str]) -> list[Lesson]:
        """Return the lessons of these ids in order; LookupError, with a message, if one has no notebook."""
        known = {lesson.id: lesson for lesson in self.ready}
        for number in (numbers := list(numbers)):
            if number not in known:
                raise LookupError(
                    _("There is no lesson {number!r}: choose from {known}.").format(
                        number=number, known=", ".join(known)
                    )
                )
        return [known[number] for number in numbers]

    @property
    def ready(self) -> tuple[Lesson, ...]:
        """The lessons that have a notebook."""
        return tuple(lesson for lesson in self.lessons if not lesson.planned)


def course_file() -> Path:
    """Return the path of course.yml: beside the notebooks in a clone, else in the installed package."""
    clone = _PACKAGE.parent / "notebooks" / "course.yml"
    return clone if clone.is_file() else _PACKAGE / "course.yml"


def load_course(path: Path | str | None = None) -> Course:
    """Read a table of contents, by default the file of `course_file`.

    Raises
    ------
    CourseFileError
        If the file is missing, is not valid YAML, has a missing, unknown or malformed field, or names a
        lesson twice.
    """
    import yaml

    path = Path(path) if path is not None else course_file()
    if not path.exists():
        raise CourseFileError(_("the table of contents {path} is missing").format(path=path))
    try:
        text = files.read_text(path, max_bytes=100_000)  # the course's own has a tenth of that
        if "*" in text and any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(text)):
            raise ValueError(_("an alias (*name) stands in it, and a few of those can fill a memory"))
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CourseFileError(
            _("{path} is not valid YAML: {error}").format(path=path, error=error)
        ) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("lessons"), list):
        raise CourseFileError(_("{path} needs a list of `lessons`").format(path=path))
    lessons = tuple(_parse_lesson(path, entry) for entry in raw["lessons"])
    ids = [lesson.id for lesson in lessons]
    if len(set(ids)) < len(ids):
        raise CourseFileError(_("{path} names a lesson twice: {ids}").format(path=path, ids=", ".join(ids)))
    return Course(
        repository=str(raw.get("repository") or "") or None,
        branch=str(raw.get("branch", "main")),
        lessons=lessons,
        path=path,
    )


def fresh_notebook(lesson: Lesson) -> str:
    """Return the text of a lesson's notebook as the course ships it, without the learner's edits.

    In an installed package or a bundle it is a file; in a clone it is read from the last commit.

    Raises
    ------
    CourseFileError
        If neither is available; the message says what to do.
    """
    carried = _PACKAGE / notebooks() / lesson.file
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    # Decoded as UTF-8, whatever the system's encoding is; git's own messages are not shown.
    show = ["git", "show", f"HEAD:./{notebooks()}/{lesson.file}"]
    try:
        completed = subprocess.run(show, cwd=_PACKAGE.parent, capture_output=True, check=True)
        return completed.stdout.decode("utf-8")
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError):
        raise CourseFileError(
            _(
                "the course's own copy of {file} is not here: {parent} is no git clone, or "
                "git does not read it. Get the course with git clone, or from its bundle"
            ).format(file=lesson.file, parent=_PACKAGE.parent)
        ) from None


def _parse_lesson(path: Path, entry: Any) -> Lesson:
    """Return the lesson of an entry of course.yml, with its texts in the chosen language.

    Title, question, hardware and objectives are translated. ``path`` is only named in messages.

    Raises
    ------
    CourseFileError
        If a field is missing, unknown or malformed.
    """
    required = ("id", "file", "title", "minutes", "question")
    fields = entry if isinstance(entry, dict) else {}
    if not all(isinstance(fields.get(key), (str, int)) for key in required):
        shown = reprlib.repr(entry)
        raise CourseFileError(
            _("{path}: a lesson needs {needed}; found {found}").format(
                path=path, needed=", ".join(required), found=shown
            )
        )
    known_fields = set(Lesson.__dataclass_fields__)
    if extra := set(entry) - known_fields:
        raise CourseFileError(
            _("{path}: lesson {id} has unknown fields {extra}").format(
                path=path, id=entry["id"], extra=sorted(extra)
            )
        )
    try:
        lists = {key: tuple(entry.get(key, ())) for key in ("objectives", "needs", "short_path")}
        numbers = {key: int(entry.get(key, 0)) for key in ("minutes", "further")}
    except (TypeError, ValueError) as error:
        raise CourseFileError(
            _(
                "{path}: lesson {id}: minutes and further are whole numbers, objectives, needs and "
                "short_path are lists ({error})"
            ).format(path=path, id=entry["id"], error=error)
        ) from error
    translated = {key: _(entry.get(key, "")) for key in ("title", "question", "hardware")}
    lists["objectives"] = tuple(map(_, lists["objectives"]))
    return Lesson(**{**entry, **lists, **translated, **numbers, "id": str(entry["id"])})
