"""The map of the lessons, what needs what: an SVG picture, made of the table of contents alone."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from itertools import permutations, product

from course_utils.course import Course, Lesson
from tools.authoring.cells import label
from tools.authoring.form import Problem
from tools.authoring.pages import WholePage

PICTURE = "images/map.svg"
WIDTH, GAP, BELOW, LINE = 380, 8, 30, 16
"""Pixels: as wide as a telephone; between boxes of a row; between rows; between lines of text."""


def rows(course: Course) -> list[tuple[Lesson, ...]]:
    """Return the lessons in rows, each below all that it needs, so ordered that few lines cross."""
    depth: dict[str, int] = {}
    for lesson in course.lessons:
        depth[lesson.id] = 1 + max((depth[other] for other in lesson.needs), default=-1)
    found: list[tuple[Lesson, ...]] = []
    for level in sorted(set(depth.values())):
        found.append(tuple(one for one in course.lessons if depth[one.id] == level))
    orders = product(*(permutations(row) for row in found))
    return list(min(orders, key=lambda order: _crossings([*order])))


def _crossings(order: Sequence[Sequence[Lesson]]) -> int:
    place = {one.id: i / len(row) for row in order for i, one in enumerate(row)}
    ends = [(place[need], place[one.id]) for row in order for one in row for need in one.needs]
    return sum((a - c) * (b - d) < 0 for a, b in ends for c, d in ends)


def alt(course: Course) -> str:
    """Say in words what the picture shows."""
    said = [f"{one.id} needs {' and '.join(one.needs)}" for one in course.lessons if one.needs]
    return f"What needs what, and minutes: {'; '.join(said)}."


def svg(course: Course) -> str:
    """Return the picture: a box a lesson with its minutes, a line to each lesson that needs it."""
    boxes, lines, middle, y = [], [], {}, GAP
    for row in rows(course):
        width = (WIDTH - GAP) / len(row) - GAP
        texts = [[*textwrap.wrap(label(one), int(width / 8.2)), f"{one.time} min"] for one in row]
        height = LINE * max(map(len, texts)) + 14
        for i, (one, text) in enumerate(zip(row, texts, strict=True)):
            x = GAP + i * (width + GAP)
            middle[one.id] = (x + width / 2, y + height)
            for need in one.needs:
                (x1, y1), (x2, y2) = middle[need], (x + width / 2, y)
                bend = (y1 + y2) / 2
                curve = f"M{x1:g} {y1:g}C{x1:g} {bend:g} {x2:g} {bend:g} {x2:g} {y2:g}"
                lines.append(f'<path d="{curve}"/>')
            size = f'width="{width:g}" height="{height:g}"'
            boxes.append(f'<rect x="{x:g}" y="{y:g}" {size} rx="6"/>')
            for n, words in enumerate(text):
                minutes = ' class="minutes"' if n == len(text) - 1 else ""
                at = y + LINE * (n + 1) + 4 + (height - 14 - LINE * len(text)) / 2
                boxes.append(
                    f'<text x="{x + width / 2:g}" y="{at:g}"{minutes}>{html.escape(words)}</text>'
                )
        y += height + BELOW
    height = y - BELOW + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{html.escape(alt(course))}</title>",
            "<style>text{font:13px sans-serif;text-anchor:middle;fill:#1a1a1a}"
            ".minutes{fill:#555}rect{fill:#e8f1f8;stroke:#0072b2}"
            "path{fill:none;stroke:#666;stroke-width:1.5}</style>",
            f'<rect width="{WIDTH}" height="{height}" style="fill:#fdfdfb;stroke:none"/>',
            *lines,
            *boxes,
            "</svg>\n",
        ]
    )


def problems(course: Course) -> list[Problem]:
    """Say whether the picture is out of date; a course without it has no problem with it."""
    return _whole(course).problems(course.path.parent.parent)


def renew(course: Course) -> list[str]:
    """Write the picture where it is out of date; return which."""
    return _whole(course).renew(course.path.parent.parent)


def _whole(course: Course) -> WholePage:
    return WholePage({PICTURE: lambda: svg(course)}, "course.yml")
