"""The table of contents: ``notebooks/course.yml``, read."""

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
    """One lesson, as the table of contents describes it.

    A learner needs ``minutes``, and ``further`` for what stands beside the main line; ``planned`` lessons
    have no notebook yet. ``short_path`` has the sections for a learner in a hurry: a heading, minutes, what
    ``catch_up`` gets before it.
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
        """The minutes of the main line, and those of *Further*: ``"75 + 30"``."""
        return f"{self.minutes} + {self.further}" if self.further else str(self.minutes)


@dataclass(frozen=True)
class Course:
    """The whole table of contents, and where it was read from."""

    repository: str | None  # owner/name on GitHub; None until it is known
    branch: str
    lessons: tuple[Lesson, ...]
    path: Path = field(compare=False)

    def page(self, path: str) -> str:
        """Return where a notebook finds a page: on GitHub, or beside itself while the course has no name."""
        home = f"https://github.com/{self.repository}/blob/{self.branch}/"
        beside = "../../" if Path("../course.yml").is_file() else "../"  # notebooks/zh/
        return (home if self.repository else beside) + path

    def lesson(self, lesson_id: str) -> Lesson:
        """Return the lesson named ``"01"``; KeyError, with the known ids, where there is none."""
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
        """Return the lessons of these numbers; LookupError, a sentence, for one that has no notebook."""
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
    """Return the table of contents: in a clone the one beside the notebooks, else the installed one."""
    clone = _PACKAGE.parent / "notebooks" / "course.yml"
    return clone if clone.is_file() else _PACKAGE / "course.yml"


def load_course(path: Path | str | None = None) -> Course:
    """Read a table of contents, by default the course's own.

    Raises
    ------
    CourseFileError
        Where the file is missing, is not YAML, or lacks a field.
    """
    import yaml

    path = Path(path) if path is not None else course_file()
    if not path.exists():
        raise CourseFileError(_("the table of contents {path} is missing").format(path=path))
    try:
        text = files.read_text(path, most=100_000)  # ours has a tenth
        if "*" in text and any(isinstance(e, yaml.AliasEvent) for e in yaml.parse(text)):
            raise ValueError(_("an alias (*name) stands in it, and a few of those can fill a memory"))
        raw = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CourseFileError(
            _("{path} is not valid YAML: {error}").format(path=path, error=error)
        ) from error
    if not isinstance(raw, dict) or not isinstance(raw.get("lessons"), list):
        raise CourseFileError(_("{path} needs a list of `lessons`").format(path=path))
    lessons = tuple(_lesson(path, entry) for entry in raw["lessons"])
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
    """Return the text of a lesson as the course ships it, never of a file that a learner edited.

    An installed package and a bundle carry the notebooks; a clone has them in its last commit.

    Raises
    ------
    CourseFileError
        Where neither is there; the message says what to do.
    """
    carried = _PACKAGE / notebooks() / lesson.file
    if carried.is_file():
        return carried.read_text(encoding="utf-8")
    # In UTF-8 whatever the system's own encoding is; quiet about what git itself says.
    show = ["git", "show", f"HEAD:./{notebooks()}/{lesson.file}"]
    try:
        done = subprocess.run(show, cwd=_PACKAGE.parent, capture_output=True, check=True)
        return done.stdout.decode("utf-8")
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError):
        raise CourseFileError(
            _(
                "the course's own copy of {file} is not here: {parent} is no git clone, or "
                "git does not read it. Get the course with git clone, or from its bundle"
            ).format(file=lesson.file, parent=_PACKAGE.parent)
        ) from None


def _lesson(path: Path, entry: Any) -> Lesson:
    needed = ("id", "file", "title", "minutes", "question")
    fields = entry if isinstance(entry, dict) else {}
    if not all(isinstance(fields.get(key), (str, int)) for key in needed):
        found = reprlib.repr(entry)
        raise CourseFileError(
            _("{path}: a lesson needs {needed}; found {found}").format(
                path=path, needed=", ".join(needed), found=found
            )
        )
    known = set(Lesson.__dataclass_fields__)
    if extra := set(entry) - known:
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
