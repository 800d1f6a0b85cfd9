"""Updates workshop/lessons.md: the exercises of each section, and the diagnoses that it quotes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from course_language import _
from course_utils import exercises
from course_utils.course import Course, Lesson
from course_utils.exercises import Exercise
from course_utils.stubs import exercise_id
from tools.authoring.anatomy import headings
from tools.authoring.form import read, tags

PAGE = "workshop/lessons.md"

ROW = re.compile(r"^\| (?P<title>[^|]+) \| (?P<minutes>\d+|–) \|.*\|$", re.MULTILINE)
"""A row of a lesson's table of sections."""
_QUOTE = re.compile(r"^- \*(?P<title>.*?)\*, `(?P<diagnosis>.*?)`: “.*?”", re.MULTILINE)


def sections(course: Course, lesson: Lesson) -> dict[str, list[Exercise]]:
    """Return the exercises by section (title of a level-2 heading) of a lesson, in the notebook's order.

    The notebook is the English one, so the titles are too. A section may have no exercises.
    """
    known = {exercise.id: exercise for exercise in exercises.lesson(lesson.id)}
    parts: dict[str, list[Exercise]] = {}
    for cell in read(course.path.parent / lesson.file).cells:
        if cell.cell_type == "markdown":
            parts |= {h.text: [] for h in headings(cell.source) if h.level == 2}
        elif "exercise" in tags(cell):
            last = list(parts)[-1]
            parts[last].append(known[exercise_id(cell)])
    return parts


def render(course: Course, text: str, translated: Callable[[str], str] = str) -> str:
    """Return the text of workshop/lessons.md with its lists of exercises and quoted diagnoses updated.

    ``text`` has the sections' untranslated titles: ``translated(title)`` is written in their place. Exercises
    and diagnoses are in the process's language. A lesson without a notebook stays as it is.
    """
    parts = re.split(r"(?=^## \d\d · )", text, flags=re.MULTILINE)
    lessons = {f"## {lesson.id} · ": lesson for lesson in course.ready}
    for number, part in enumerate(parts):
        lesson = lessons.get(part[: len("## 00 · ")])
        if lesson:
            known = exercises.lesson(lesson.id)
            parts[number] = _update_lesson(part, sections(course, lesson), known, translated)
    return "".join(parts)


def _update_lesson(
    text: str,
    parts: dict[str, list[Exercise]],
    known: Iterable[Exercise],
    translated: Callable[[str], str],
) -> str:
    """Return one lesson's part of the page, updated.

    ``parts`` maps a section's untranslated title, as in ``text``, to its exercises; ``translated(title)`` is
    written. A section that isn't in it gets no exercises. A quotation of an exercise or diagnosis that isn't
    ``known`` stays.
    """
    by_title = {exercise.title: exercise for exercise in known}

    def row(match: re.Match[str]) -> str:
        """Return a table row with the section's current exercises."""
        asked = parts.get(match["title"], [])
        entry = _("{title} (`{slug}`, {minutes} min)")
        listed = [entry.format(title=e.title, slug=e.slug, minutes=e.minutes) for e in asked]
        return f"| {translated(match['title'])} | {match['minutes']} | {_(', ').join(listed)} |"

    def quote(match: re.Match[str]) -> str:
        """Return a quotation with the diagnosis's current text; unchanged if there is no such diagnosis."""
        exercise = by_title.get(match["title"])
        diagnosis = exercise.diagnoses.get(match["diagnosis"]) if exercise else None
        if diagnosis is None:
            return match[0]
        return f"- *{match['title']}*, `{match['diagnosis']}`: “{diagnosis}”"

    return _QUOTE.sub(quote, ROW.sub(row, text))
