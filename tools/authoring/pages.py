"""Pages that are generated, in part (README.md's map and benchmark, colab_links.md's table) or whole.

A generated part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``; the rest of the page
is written by hand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_utils import files
from course_utils.course import Course, Lesson
from course_utils.stubs import AuthoringError
from tools.authoring.benchmark_tables import beside
from tools.authoring.cells import colab_badge, kaggle_badge, label, row
from tools.authoring.form import FIX, Problem
from tools.authoring.machines import cards
from tools.authoring.templates import programs


def course_map(course: Course) -> str:
    """Return the table of lessons for README.md, as Markdown."""
    rows = [
        row(_linked(lesson), lesson.question, str(lesson.minutes), _open(course, lesson))
        for lesson in course.lessons
    ]
    head = [row("Lesson", "The question it answers", "Minutes", "Open"), "|---|---|---:|---|"]
    return "\n".join(['<a id="course-map"></a>', "", *head, *rows])


def lesson_links(course: Course) -> str:
    """Return the table of open-in badges for colab_links.md, as Markdown."""
    rows = []
    for lesson in course.lessons:
        badges = [colab_badge(course, lesson), kaggle_badge(course, lesson)]
        rows.append(row(_linked(lesson), *(["planned", "planned"] if lesson.planned else badges)))
    return "\n".join([row("Lesson", "Colab", "Kaggle"), "|---|---|---|", *rows])


PAGES = {
    "README.md": {"course-map": course_map, "beside": beside},
    "colab_links.md": {"lesson-links": lesson_links},
    "handbook/templates.md": {"programs": programs},
    "handbook/machines.md": {"cards": cards},
}


def pages_of(course: Course) -> dict[str, Path]:
    """Return the pages with generated parts, and where they are; a course may do without a handbook."""
    root = course.path.parent.parent
    return {page: root / page for page in PAGES if "/" not in page or (root / page).exists()}


def render(course: Course, page: str, text: str) -> str:
    """Return a page with its generated parts fresh.

    Parameters
    ----------
    page : str
        One of `PAGES`.
    text : str
        The page as it is.

    Raises
    ------
    AuthoringError
        If the page has not exactly one pair of markers for each part.
    """
    for name, part in PAGES[page].items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        if (text.count(begin), text.count(end)) != (1, 1) or text.index(begin) > text.index(end):
            raise AuthoringError(f"{page} needs one line {begin} and, below it, one line {end}")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}\n{part(course)}\n{end}{after}"
    return text


def page_problems(course: Course) -> list[Problem]:
    """List the pages that are missing, or whose generated part is out of date."""
    problems = []
    for page, path in pages_of(course).items():
        try:
            text = path.read_text(encoding="utf-8")
            if render(course, page, text) != text:
                problems.append(Problem(page, "", "a table in it is out of date", FIX))
        except FileNotFoundError:
            problems.append(Problem(page, "", "does not exist", "write it"))
        except AuthoringError as error:
            problems.append(Problem(page, "", "has no place for its table", str(error)))
    return problems


def _linked(lesson: Lesson) -> str:
    return label(lesson) if lesson.planned else f"[{label(lesson)}](notebooks/{lesson.file})"


def _open(course: Course, lesson: Lesson) -> str:
    if lesson.planned:
        return "planned"
    return f"{colab_badge(course, lesson)} {kaggle_badge(course, lesson)}"


# --- whole pages, each with a picture -------------------------------------------------------------


def shows(content: bytes) -> str:
    """Return what stands in a picture's file to tell whether it shows this content."""
    return f"shows {hashlib.sha256(content).hexdigest()[:16]}"


@dataclass(frozen=True)
class WholePage:
    """A page and its picture, made of something and of nothing else.

    Attributes
    ----------
    page, chart
        Their paths from the root.
    text, mark, draw
        Return the page; return what `shows` makes of the picture's content; write the picture.
    source
        What they are made of, in words.
    """

    page: str
    chart: str
    text: Callable[[], str]
    mark: Callable[[], str]
    draw: Callable[[Path], None]
    source: str

    def problems(self, root: Path) -> list[Problem]:
        """List what is out of date; a course without the page has no problem with it."""
        path, chart = root / self.page, root / self.chart
        if not path.exists():
            return []
        stale = []
        if path.read_text(encoding="utf-8") != self.text():
            stale.append(self.page)
        if not chart.exists() or self.mark() not in chart.read_text(encoding="utf-8"):
            stale.append(self.chart)
        return [Problem(file, "", f"is out of date with {self.source}", FIX) for file in stale]

    def renew(self, root: Path) -> list[str]:
        """Write the page and the picture where they are out of date; return which."""
        stale = [problem.file for problem in self.problems(root)]
        if self.page in stale:
            files.write(root / self.page, self.text())
        if self.chart in stale:
            self.draw(root / self.chart)
        return stale
