"""The page of explorers: the interactive figures of all lessons, with the question that each one asks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course_language import _
from course_utils.course import Course, Lesson
from tools.authoring.anatomy import headings
from tools.authoring.cells import label, row
from tools.authoring.form import read, tags

PAGE = "handbook/explorers.md"
_CALL = re.compile(r"^(\w+\.\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """An explorer in a lesson: its lesson, the English heading above it, and its question in English."""

    lesson: Lesson
    heading: str
    question: str


def places(course: Course) -> Iterator[Place]:
    """Yield the explorers that the lessons show, in the order of the course."""
    lessons = course.path.parent.parent / "course_lessons"
    for lesson in course.ready:
        asked, heading = questions(lessons / "shared") | questions(lessons / f"lesson{lesson.id}"), ""
        for cell in read(course.path.parent / lesson.file).cells:
            if cell.cell_type == "markdown":
                if "generated" not in tags(cell):  # a task's title is no heading of the translated notebook
                    heading = ([heading] + [one.text for one in headings(cell.source) if one.level <= 3])[-1]
                continue
            for call in _CALL.findall(cell.source):
                if call in asked:
                    yield Place(lesson, heading, asked[call])


def questions(folder: Path) -> dict[str, str]:
    """Return the question of each explorer in a folder's modules, by its call: ``explorers.overlap``."""
    found: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for function in ast.parse(text).body if "Explorer(" in text else ():
            for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
                if isinstance(node, ast.keyword) and node.arg == "question":
                    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
                    name = f"{path.stem}.{function.name}"
                    found[name] = next(text for text in texts if isinstance(text, str))
    return found


def table(course: Course) -> str:
    """Return the table of explorers, as Markdown: the question, and the place in its lesson."""
    rows = [
        row(
            _(place.question),
            f"[{label(place.lesson)}](../notebooks/{place.lesson.file}#{place.heading.replace(' ', '-')})",
        )
        for place in places(course)
    ]
    return "\n".join([row(_("The question"), _("Where it is")), "|---|---|", *rows])
