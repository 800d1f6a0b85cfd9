"""The short path of four hours: the sections marked in course.yml, as a header's line and as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nbformat import NotebookNode

from course_language import _, chosen
from course_utils.course import Course, Lesson
from tools.authoring.anatomy import notebook_headings
from tools.authoring.form import Problem

PAGE = "handbook/short_path.md"
OWN_TRAINING = 25
"""Minutes for the learner's own training at the end of the path."""


@dataclass(frozen=True)
class Stop:
    """A section of the short path and its minutes; a whole lesson if ``section`` is "".

    ``catch_up`` is a word of the section's heading, for `catch_up_call`, if the section needs what was
    skipped.
    """

    minutes: int
    section: str = ""
    catch_up: str = ""


def stops(lesson: Lesson) -> list[Stop]:
    """Return a lesson's stops on the short path, in the chosen language; an empty list if it has none."""
    parts = [Stop(**entry) for entry in lesson.short_path]
    if chosen() == "en":
        return parts
    translated = [replace(stop, section=_(stop.section)) for stop in parts]
    return [replace(stop, catch_up=stop.section if stop.catch_up else "") for stop in translated]


def minutes(lesson: Lesson) -> int:
    """Return the minutes that the short path spends in a lesson."""
    return sum(stop.minutes for stop in stops(lesson))


def total(course: Course) -> int:
    """Return the minutes of the whole short path, `OWN_TRAINING` included."""
    return sum(map(minutes, course.lessons)) + OWN_TRAINING


def catch_up_call(lesson: Lesson, stop: Stop) -> str:
    """Return the call, as inline code, that defines what a section needs from the skipped ones before it."""
    return f'`course_utils.catch_up("{lesson.id}", "{stop.catch_up}")`'


def header_line(course: Course, lesson: Lesson) -> str:
    """Return the header's sentence on which sections to take; "" if the path skips the lesson."""
    taken = stops(lesson)
    if not taken:
        return ""
    begin = _("[Short path]({page}), {minutes} min: ").format(page=course.page(PAGE), minutes=minutes(lesson))
    if not taken[0].section:
        return _("{begin}the whole lesson.").format(begin=begin)
    text = _("{begin}{taken}; skip the other sections and their code cells.").format(
        begin=begin, taken=_(", ").join(f"*{stop.section}*" for stop in taken)
    )
    if calls := [
        _("{catch_up_call} before *{section}*").format(
            catch_up_call=catch_up_call(lesson, s), section=s.section
        )
        for s in taken
        if s.catch_up
    ]:
        text += _(" In a new cell run {calls}.").format(calls=_(", and ").join(calls))
    return text


def table(course: Course) -> str:
    """Return the table of the short path, one row for each section, as Markdown."""
    rows = [_("| Lesson | Section | Minutes |"), "|---|---|---:|"]
    for lesson in course.lessons:
        file = f"../notebooks/{lesson.file}"
        for i, stop in enumerate(stops(lesson)):
            name = f"[{lesson.id} · {lesson.title}]({file})" if i == 0 else ""
            what = f"[{stop.section}]({file}#{stop.section.replace(' ', '-')})"
            if stop.catch_up:
                what += _(". First run {catch_up_call}").format(catch_up_call=catch_up_call(lesson, stop))
            rows.append(f"| {name} | {what if stop.section else _('all')} | {stop.minutes} |")
    rows.append(
        _("| [Your own training](#your-own-training) | | {own_training} |").format(own_training=OWN_TRAINING)
    )
    whole = total(course)
    return "\n".join(
        [
            *rows,
            _("| In all | | {total} ({hours} h {minutes} min) |").format(
                total=whole, hours=whole // 60, minutes=whole % 60
            ),
        ]
    )


def path_problems(nb: NotebookNode, lesson: Lesson, file: str) -> Iterator[Problem]:
    """Yield a problem for each section of the short path that is missing, and if their order differs."""
    have = [heading.text for heading in notebook_headings(nb) if heading.level == 2]
    want = [stop.section for stop in stops(lesson) if stop.section]
    fix = _("correct short_path in course.yml")
    for section in want:
        if section not in have:
            yield Problem(
                file,
                "",
                _("has no section '{section}' for the short path").format(section=section),
                fix,
            )
    if [s for s in have if s in want] != [s for s in want if s in have]:
        yield Problem(file, "", _("has the sections of the short path in another order"), fix)
