"""The instructor's guide: schedules and pages a lesson, made from ``workshop/plan.yml`` and the lessons.

A section's minutes are those of its exercises, and its share, by words and lines of code, of the rest of
the lesson's; so they add up to the lesson's minutes in course.yml.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from nbformat import NotebookNode

from course_utils.course import Course, Lesson
from course_utils.exercises import Exercise
from course_utils.exercises import lesson as exercises_of
from course_utils.exercises.judge import COMMON
from course_utils.stubs import AuthoringError, exercise_id
from tools.authoring.anatomy import headings
from tools.authoring.cells import label, row
from tools.authoring.form import read, tags

CODE_LINE = 6
"""A line of code takes as long to read and run as this many words of prose."""

SKIPPED = 1
"""Minutes for a section that a schedule leaves out: its cells are run all the same."""


@dataclass(frozen=True)
class Section:
    """A section of a lesson: its heading, its minutes, and the ids of its exercises."""

    title: str
    minutes: int
    exercises: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """One line of a schedule: when it begins, how long it takes, and what it is."""

    start: str
    minutes: int
    what: str
    leave: tuple[str, ...] = ()
    homework: tuple[str, ...] = ()


def read_plan(course: Course) -> dict[str, Any]:
    """Read ``workshop/plan.yml``; AuthoringError where it is missing, or not of the form it describes."""
    path = course.path.parent.parent / "workshop" / "plan.yml"
    try:
        plan = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise AuthoringError(f"workshop/plan.yml cannot be read: {error}") from None
    if not isinstance(plan, dict) or {"schedules", "lessons"} - set(plan):
        raise AuthoringError("workshop/plan.yml needs `schedules` and `lessons`")
    return plan


def timetable(course: Course, day: Mapping[str, Any]) -> list[Block]:
    """Work out when each block of a day begins.

    Parameters
    ----------
    course
        The table of contents.
    day
        A day of the plan: when it starts and ends, and its blocks.

    Returns
    -------
    list of Block
        In order; the last one ends by the day's end.

    Raises
    ------
    AuthoringError
        Where a block is none, names a section or an exercise that its lesson has not, or the day is too
        short for its blocks.
    """
    now, end = _clock(day["starts"]), _clock(day["ends"])
    found = []
    for raw in day["blocks"]:
        block = _block(course, raw, f"{now // 60:02}:{now % 60:02}")
        found.append(block)
        now += block.minutes
    if now > end:
        raise AuthoringError(f"a day of workshop/plan.yml ends {now - end} minutes too late")
    return found


def _clock(text: str) -> int:
    hours, minutes = text.split(":")
    return 60 * int(hours) + int(minutes)


def _block(course: Course, raw: Mapping[str, Any], start: str) -> Block:
    if "lesson" not in raw:
        (kind,) = {"talk", "pause", "slack"} & set(raw)
        words = {"pause": "*Pause*", "slack": "*Slack, for what took longer*"}
        minutes = raw["minutes"] if kind == "talk" else raw[kind]
        return Block(start, minutes, words.get(kind, raw[kind]))
    lesson = course.lesson(raw["lesson"])
    leave, homework = tuple(raw.get("leave", ())), tuple(raw.get("homework", ()))
    parts = {section.title: section for section in lesson_sections(course, lesson)}
    minutes = {exercise.id: exercise.minutes for exercise in exercises_of(lesson.id)}
    _known(lesson, leave, parts)
    _known(lesson, homework, minutes)
    took = lesson.minutes - sum(parts[title].minutes - SKIPPED for title in leave)
    gone = {ident for title in leave for ident in parts[title].exercises}
    took -= sum(minutes[ident] for ident in homework if ident not in gone)
    return Block(start, took, label(lesson), leave, homework)


def _known(lesson: Lesson, names: Iterable[str], there: Iterable[str]) -> None:
    for name in names:
        if name not in there:
            raise AuthoringError(
                f"workshop/plan.yml: lesson {lesson.id} has no {name!r}; it has {', '.join(there)}"
            )


def schedules(course: Course) -> str:
    """Return the schedules of the plan as Markdown."""
    parts = []
    for schedule in read_plan(course)["schedules"]:
        parts += [f"### {schedule['name']}", schedule["aim"]]
        days = [timetable(course, day) for day in schedule["days"]]
        for i, (day, blocks) in enumerate(zip(schedule["days"], days, strict=True), 1):
            if len(days) > 1:
                parts.append(f"**Day {i}**")
            parts.append(_table(blocks, day["ends"]))
    return "\n\n".join(parts)


def _table(blocks: Sequence[Block], ends: str) -> str:
    head = ("From", "Minutes", "What", "Run, and do not talk about", "For the evening")
    rows = [
        (b.start, str(b.minutes), b.what, " · ".join(b.leave), ", ".join(map(_code, b.homework)))
        for b in blocks
    ]
    return "\n".join(
        [
            row(*head),
            "|---|---:|---|---|---|",
            *(row(*r) for r in rows),
            row(ends, "", "End", "", ""),
        ]
    )


def lesson_notes(course: Course) -> str:
    """Return, for each lesson that has a notebook, what an instructor wants to know, as Markdown."""
    plan = read_plan(course)["lessons"]
    if missing := [lesson.id for lesson in course.ready if lesson.id not in plan]:
        raise AuthoringError(f"workshop/plan.yml says nothing of lesson {missing[0]}")
    return "\n\n".join(_notes(course, lesson, plan[lesson.id]) for lesson in course.ready)


def _notes(course: Course, lesson: Lesson, notes: Mapping[str, Any]) -> str:
    parts = lesson_sections(course, lesson)
    exercises = {exercise.id: exercise for exercise in exercises_of(lesson.id)}
    _known(lesson, notes["cut"], [section.title for section in parts])
    rows = [
        row(s.title, str(s.minutes), ", ".join(_asked(exercises[ident]) for ident in s.exercises))
        for s in parts
    ]
    minutes = {section.title: section.minutes - SKIPPED for section in parts}
    saved = [f"{title} (saves {minutes[title] or 'under 1'} min)" for title in notes["cut"]]
    stuck = [_stuck(lesson, exercises, entry) for entry in notes["stuck"]]
    return "\n\n".join(
        [
            f"## {label(lesson)}",
            f"[The notebook](../notebooks/{lesson.file}) · {lesson.minutes} minutes · its answers: "
            f"`python3 -m course_utils answers {lesson.id}`",
            f"**Say first.** {notes['say'].strip()}",
            "\n".join([row("Section", "Minutes", "Exercises"), "|---|---:|---|", *rows]),
            "**Where rooms get stuck**",
            "\n".join(stuck),
            f"**Late? Cut here**, in this order: {' · '.join(saved)}",
        ]
    )


def _asked(exercise: Exercise) -> str:
    return f"{exercise.title} ({_code(exercise.slug)}, {exercise.minutes} min)"


def _stuck(lesson: Lesson, exercises: Mapping[str, Exercise], entry: Mapping[str, str]) -> str:
    ident, _, diagnosis = entry["at"].partition(" ")
    _known(lesson, [ident], exercises)
    known = {**COMMON, **exercises[ident].diagnoses}
    _known(lesson, [diagnosis], known)
    return f"- *{exercises[ident].title}*, {_code(diagnosis)}: “{known[diagnosis]}” {entry['do']}"


def _code(text: str) -> str:
    return f"`{text}`"


def lesson_sections(course: Course, lesson: Lesson) -> list[Section]:
    """Return the sections of a lesson of the course."""
    return sections(read(course.path.parent / lesson.file), lesson, exercises_of(lesson.id))


def sections(nb: NotebookNode, lesson: Lesson, exercises: Iterable[Exercise]) -> list[Section]:
    """Divide a lesson's minutes among its sections; they add up to the lesson's."""
    minutes = {exercise.id: exercise.minutes for exercise in exercises}
    titles, weights, asked = [], [], []
    before = 0.0
    for cell in nb.cells:
        if cell.cell_type == "markdown" and not cell.get("id", "").startswith("task-"):
            for heading in headings(cell.source):
                if heading.level == 2:
                    titles.append(heading.text)
                    weights.append(before)
                    asked.append([])
                    before = 0.0
        weight = _weight(cell)
        if not titles:  # the header and the set-up go to the first section
            before += weight
            continue
        weights[-1] += weight
        if ident := "exercise" in tags(cell) and exercise_id(cell):
            asked[-1].append(ident)
    rest = lesson.minutes - sum(minutes[ident] for part in asked for ident in part)
    if rest < 0:
        raise AuthoringError(f"lesson {lesson.id}: its exercises take longer than its minutes")
    exact = [rest * weight / sum(weights) for weight in weights]
    whole = _rounded(exact, rest)
    return [
        Section(title, own + sum(minutes[ident] for ident in part), tuple(part))
        for title, own, part in zip(titles, whole, asked, strict=True)
    ]


def _weight(cell: NotebookNode) -> float:
    if "generated" in tags(cell) and not cell.get("id", "").startswith("header"):
        return 0.0
    if "exercise" in tags(cell):
        return 0.0
    if cell.cell_type == "code":
        return CODE_LINE * len(cell.source.splitlines())
    return len(re.sub(r"<!--.*?-->", "", cell.source, flags=re.DOTALL).split())


def _rounded(values: Sequence[float], total: int) -> list[int]:
    """Round to whole numbers that add up to the total."""
    whole = [int(value) for value in values]
    by_rest = sorted(range(len(values)), key=lambda i: whole[i] - values[i])
    for i in by_rest[: total - sum(whole)]:
        whole[i] += 1
    return whole
