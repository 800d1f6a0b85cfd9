"""Pages that are generated, in part (README.md's table of lessons, colab_links.md's) or whole.

A generated part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``, in TOML and YAML between
``# NAME:begin`` and ``# NAME:end``; the rest of the page is written by hand. What depends on where the
course lives on GitHub stands in such a part, and reads well while nobody knows that.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from course_language import word
from course_utils import files
from course_utils.course import Course, Lesson
from course_utils.stubs import AuthoringError
from tools.authoring import short_path
from tools.authoring.cells import (
    colab_badge,
    colab_url,
    kaggle_badge,
    kaggle_url,
    label,
    row,
    seen_url,
)
from tools.authoring.error_pages import errors
from tools.authoring.form import FIX, Problem
from tools.authoring.machines import cards
from tools.authoring.practices import practices
from tools.authoring.templates import programs

FOLDER = "pytorch-gpu-course"  # what a clone without a name of its own is put in
ADDRESS = "`ADDRESS` is what the green *Code* button shows on the page of the course, or of your fork, on GitHub."


def course_map(course: Course) -> str:
    """Return the table of lessons for README.md, with their sum, as Markdown."""
    width = 5 if course.repository else 4  # without a name there is nothing to open
    minutes = sum(lesson.minutes for lesson in course.lessons)
    further = sum(lesson.further for lesson in course.lessons)
    head = ("Lesson", "Minutes", "Needs", "The question it answers", "Open in")
    rows = [
        (_linked(o), o.time, word(", ").join(o.needs), o.question, _open(course, o))
        for o in course.lessons
    ]
    hours, both = f"In all {(minutes + further) / 60:.1f} hours", f"{minutes:,}"
    if further:
        hours += f", {further / 60:.1f} of them for *Further*"
        both += f" + {further}"
    rows.append((hours, both, "", "", ""))
    lines = [row(*cells[:width]) for cells in (head, ("---", "---:", "---", "---", "---"), *rows)]
    return "\n".join(['<a id="course-map"></a>', "", *lines])


def lesson_links(course: Course) -> str:
    """Return the table of open-in badges for colab_links.md, as Markdown."""
    if not course.repository:
        return "Upload the lesson and the course's helpers yourself: [Without GitHub](#without-github) says how."
    rows = []
    for lesson in course.lessons:
        badges = [colab_badge(course, lesson), kaggle_badge(course, lesson)]
        rows.append(row(_linked(lesson), *(["planned", "planned"] if lesson.planned else badges)))
    return "\n".join([row("Lesson", "Colab", "Kaggle"), "|---|---|---|", *rows])


def address(course: Course) -> str:
    """Return what git clones, or a word in its place."""
    return f"https://github.com/{course.repository}" if course.repository else "ADDRESS"


def start(course: Course) -> str:
    """Return the lines that fetch the course and open it, as Markdown."""
    folder = course.repository.partition("/")[2] if course.repository else FOLDER
    clone = address(course) if course.repository else f"{address(course)} {folder}"
    lines = ["```", f"git clone {clone}", f"cd {folder}", "python3 -m course_utils lab", "```"]
    return "\n".join(lines + ([] if course.repository else ["", ADDRESS]))


def simgpu_install(course: Course) -> str:
    """Return how the simulated GPU is installed alone, as Markdown."""
    if course.repository:
        return f'```bash\npip install "git+{address(course)}#subdirectory=simgpu"\n```'
    return "In a clone of the course:\n\n```bash\npip install ./simgpu\n```"


def urls(course: Course) -> str:
    """Return where the package says it comes from, as TOML."""
    return f'[project.urls]\nSource = "{address(course)}"' if course.repository else ""


PAGES = {
    "README.md": {"start": start, "course-map": course_map},
    "colab_links.md": {"lesson-links": lesson_links},
    "pyproject.toml": {"urls": urls},
    "simgpu/README.md": {"install": simgpu_install},
    "handbook/errors.md": {"entries": errors},
    "handbook/practices.md": {"practices": practices},
    short_path.PAGE: {"short-path": short_path.table},
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
        mark = "<!-- {}:{} -->" if page.endswith(".md") else "# {}:{}"
        begin, end = (mark.format(name, edge) for edge in ("begin", "end"))
        if (text.count(begin), text.count(end)) != (1, 1) or text.index(begin) > text.index(end):
            raise AuthoringError(f"{page} needs one line {begin} and, below it, one line {end}")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        indent = re.search(r" *$", before)[0]
        text = before + "\n".join(filter(None, [begin, part(course), indent + end])) + after
    return text


def stale_pages(course: Course) -> tuple[dict[str, str], list[Problem]]:
    """Return the pages whose generated part is out of date, each with its fresh text; and those that need a hand."""
    stale, problems = {}, []
    for page, path in pages_of(course).items():
        try:
            text = path.read_text(encoding="utf-8")
            if (fresh := render(course, page, text)) != text:
                stale[page] = fresh
        except FileNotFoundError:
            problems.append(Problem(page, "", "does not exist", "write it"))
        except AuthoringError as error:
            problems.append(Problem(page, "", "has no place for a generated part", str(error)))
    return stale, problems


def page_problems(course: Course) -> list[Problem]:
    """List the pages that are missing, or whose generated part is out of date."""
    stale, problems = stale_pages(course)
    what = "a generated part of it is out of date"
    return [*(Problem(page, "", what, FIX) for page in stale), *problems]


def _linked(lesson: Lesson) -> str:
    return label(lesson) if lesson.planned else f"[{label(lesson)}](notebooks/{lesson.file})"


def _open(course: Course, lesson: Lesson) -> str:
    if lesson.planned or not course.repository:
        return "planned" if lesson.planned else ""
    ways = {"Colab": colab_url(course, lesson), "Kaggle": kaggle_url(course, lesson)}
    ways["outputs"] = seen_url(course, lesson)
    return " · ".join(f"[{name}]({url})" for name, url in ways.items())


WHOLE = frozenset(
    f"handbook/{name}.md" for name in ("checkers", "claims", "claims_numbers", "fidelity")
)
"""The pages that programs write whole: no catalogue has their texts."""


# --- whole pages, each with a picture -------------------------------------------------------------


def shows(content: bytes) -> str:
    """Return what stands in a picture's file to tell whether it shows this content."""
    return f"shows {hashlib.sha256(content).hexdigest()[:16]}"


@dataclass(frozen=True)
class WholePage:
    """Pages and their picture, or a page alone, made of something and of nothing else.

    Attributes
    ----------
    pages
        Their paths from the root, and what returns each page.
    source
        What they are made of, in words.
    chart, mark, draw
        The picture's path; what returns what `shows` makes of its content, and what writes it.
    """

    pages: Mapping[str, Callable[[], str]]
    source: str
    chart: str = ""
    mark: Callable[[], str] = str
    draw: Callable[[Path], None] | None = None

    def problems(self, root: Path) -> list[Problem]:
        """List what is out of date; a course without the first page has no problem with it."""
        if not (root / next(iter(self.pages))).exists():
            return []
        stale = [file for file, text in self.pages.items() if _read(root / file) != text()]
        if self.chart and self.mark() not in _read(root / self.chart):
            stale.append(self.chart)
        return [Problem(file, "", f"is out of date with {self.source}", FIX) for file in stale]

    def renew(self, root: Path) -> list[str]:
        """Write the pages and the picture where they are out of date; return which."""
        stale = [problem.file for problem in self.problems(root)]
        for file in stale:
            if file == self.chart:
                self.draw(root / file)
            else:
                files.write(root / file, self.pages[file]())
        return stale


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
