"""Pages that are generated, in part (README.md's table of lessons, colab_links.md's) or whole.

A generated part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``, in TOML and YAML between
``# NAME:begin`` and ``# NAME:end``; the rest of the page is written by hand. Text that depends on the
course's repository on GitHub is generated, also for a course without one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_language import _, chosen, languages, own_name
from course_utils import files
from course_utils.course import Course, Lesson
from course_utils.stubs import AuthoringError
from tools.authoring import explorers, short_path
from tools.authoring.cells import badges, executed_page_url, label, open_in, row, site
from tools.authoring.handbook import cards, error_lists, programs
from tools.authoring.links import translated_path
from tools.authoring.practices import practices

FOLDER = "pytorch-gpu-course"  # the clone's folder while the course has no repository
ADDRESS = _(
    "`ADDRESS` is what the green *Code* button shows on the page of the course, or of your fork, on GitHub."
)


def course_map(course: Course) -> str:
    """Return README.md's table of lessons, with the total time, as Markdown."""
    width = 5 if course.repository else 4  # no column of links without a repository
    minutes = sum(lesson.minutes for lesson in course.ready)
    further = sum(lesson.further for lesson in course.ready)
    head = (_("Lesson"), _("Minutes"), _("Needs"), _("The question it answers"), _("Open in"))
    rows = [(_linked(o), o.time, _(", ").join(o.needs), o.question, _open(course, o)) for o in course.ready]
    hours, both = (
        _("In all {total:.1f} hours").format(total=(minutes + further) / 60),
        f"{minutes:,}",
    )
    if further:
        hours += _(", {further:.1f} of them for *Further*").format(further=further / 60)
        both += f" + {further}"
    rows.append((hours, both, "", "", ""))
    lines = [row(*cells[:width]) for cells in (head, ("---", "---:", "---", "---", "---"), *rows)]
    return "\n".join(['<a id="course-map"></a>', "", *lines])


def doors(course: Course) -> str:
    """Return README.md's line of links below the title: those that lead somewhere."""
    ways = []
    if course.repository:
        first = course.ready[0]
        ways.append((_("**Read online**"), _site_home(course)))
        ways.append(
            (_("**Open {lesson} in Colab**").format(lesson=first.id), open_in(course, first)["Colab"])
        )
    ways.append((_("**Run it here**"), "#start"))
    if not course.repository:
        ways.append((_("**The lessons**"), "#course-map"))
    others = {code: translated_path("README.md", code) for code in languages()[1:]}
    root = course.path.parent.parent
    ways += [
        (own_name(code), page) for code, page in others.items() if code == chosen() or (root / page).is_file()
    ]
    return " · ".join(f"[{name}]({target})" for name, target in ways)


def _site_home(course: Course) -> str:
    """Return the URL of the course's site in the chosen language."""
    return site(course.repository) + ("" if chosen() == "en" else f"{chosen()}/")


def lesson_links(course: Course) -> str:
    """Return colab_links.md's table of badges, as Markdown; a sentence while the course has no repository."""
    if not course.repository:
        return _(
            "Upload the lesson and the course's helpers yourself: [Without GitHub](#without-github) says how."
        )
    rows = [row(_linked(lesson), *badges(course, lesson)) for lesson in course.ready]
    return "\n".join([row("Lesson", "Colab", "Kaggle"), "|---|---|---|", *rows])


def clone_address(course: Course) -> str:
    """Return the URL to clone, or the placeholder ``ADDRESS`` while the course has no repository."""
    return f"https://github.com/{course.repository}" if course.repository else "ADDRESS"


def start(course: Course) -> str:
    """Return the shell commands that clone the course and open JupyterLab, as a Markdown code block."""
    folder = course.repository.partition("/")[2] if course.repository else FOLDER
    clone = clone_address(course) if course.repository else f"{clone_address(course)} {folder}"
    lines = ["```", f"git clone {clone}", f"cd {folder}", "python3 -m course_utils lab", "```"]
    return "\n".join(lines + ([] if course.repository else ["", ADDRESS]))


def simgpu_install(course: Course) -> str:
    """Return the command that installs the simulated GPU alone, as Markdown."""
    if course.repository:
        return f'```bash\npip install "git+{clone_address(course)}#subdirectory=simgpu"\n```'
    return _("In a clone of the course:\n\n```bash\npip install ./simgpu\n```")


def urls(course: Course) -> str:
    """Return pyproject.toml's table ``[project.urls]``; "" while the course has no repository."""
    return f'[project.urls]\nSource = "{clone_address(course)}"' if course.repository else ""


PAGES = {
    "README.md": {"doors": doors, "start": start, "course-map": course_map},
    "colab_links.md": {"lesson-links": lesson_links},
    "pyproject.toml": {"urls": urls},
    "simgpu/README.md": {"install": simgpu_install},
    "handbook/errors.md": {"entries": error_lists},
    explorers.PAGE: {"explorers": explorers.table},
    "handbook/practices.md": {"practices": practices},
    short_path.PAGE: {"short-path": short_path.table},
    "handbook/templates.md": {"programs": programs},
    "handbook/machines.md": {"cards": cards},
}


def generated_pages(course: Course) -> list[Generated]:
    """Return the pages of `PAGES`, with generated parts; one in a folder is left out if it does not exist."""
    root = course.path.parent.parent

    def content(page: str) -> Callable[[], str]:
        """Return a function that returns the page's up-to-date text."""
        return lambda: render(course, page, (root / page).read_text(encoding="utf-8"))

    pages = [page for page in PAGES if "/" not in page or (root / page).exists()]
    return [Generated(page, content(page)) for page in pages]


def render(course: Course, page: str, text: str) -> str:
    """Return a page's text with its generated parts updated.

    Parameters
    ----------
    page : str
        A key of `PAGES`: the path from the repository's root.
    text : str
        The page's present text.

    Raises
    ------
    AuthoringError
        If the page has not exactly one pair of markers for each part.
    """
    for name, part in PAGES[page].items():
        mark = "<!-- {}:{} -->" if page.endswith(".md") else "# {}:{}"
        begin, end = (mark.format(name, edge) for edge in ("begin", "end"))
        if (text.count(begin), text.count(end)) != (1, 1) or text.index(begin) > text.index(end):
            raise AuthoringError(
                _("{page} needs one line {begin} and, below it, one line {end}").format(
                    page=page, begin=begin, end=end
                )
            )
        before, __, rest = text.partition(begin)
        after = rest.partition(end)[2]
        indent = re.search(r" *$", before)[0]
        text = before + "\n".join(filter(None, [begin, part(course), indent + end])) + after
    return text


def _linked(lesson: Lesson) -> str:
    """Return a Markdown link to a lesson's notebook."""
    return f"[{label(lesson)}](notebooks/{lesson.file})"


def _open(course: Course, lesson: Lesson) -> str:
    """Return links that open a lesson in Colab, in Kaggle and on the site; "" without a repository."""
    if not course.repository:
        return ""
    addresses = {**open_in(course, lesson), "outputs": executed_page_url(course, lesson)}
    return " · ".join(f"[{name}]({url})" for name, url in addresses.items())


WHOLE = frozenset(f"handbook/{name}.md" for name in ("checkers", "claims", "claims_numbers", "fidelity"))
"""Pages generated as a whole, which are not translated by catalogues."""


# --- whole files ------------------------------------------------------------------------------------


def digest_mark(content: bytes) -> str:
    """Return the string stored in a chart's file to tell which content it shows: a hash of ``content``."""
    return f"shows {hashlib.sha256(content).hexdigest()[:16]}"


@dataclass(frozen=True)
class Generated:
    """A file that ``notebooks --fix`` writes. It is skipped in a course that does not have its folder.

    Attributes
    ----------
    path
        Relative to the course's root.
    content
        Returns the file's text; for a chart, the `digest_mark` that the file must contain.
    draw
        Writes the chart to a path; None for a text file.
    """

    path: str
    content: Callable[[], str]
    draw: Callable[[Path], None] | None = None

    def is_stale(self, root: Path) -> bool:
        """Return whether the file is missing or out of date; False if its folder does not exist."""
        path = root / self.path
        if not path.parent.is_dir():
            return False
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return self.content() not in text if self.draw else self.content() != text

    def write(self, root: Path) -> None:
        """Write the file below ``root``."""
        if self.draw:
            self.draw(root / self.path)
        else:
            files.write(root / self.path, self.content())
