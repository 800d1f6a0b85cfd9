"""The reader's site: what Sphinx builds from, made of the executed lessons and the pages."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import posixpath
import re
import shutil
from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
from nbformat import NotebookNode

from course_language import languages
from course_utils.course import Course
from course_utils.exercises.result import RESULT_MIME
from tools.authoring.cells import SEEN
from tools.authoring.form import dumps
from tools.authoring.links import slug
from tools.authoring.pages import start

OWN = ("index.md", "about.md")  # in site/, and written for it
CLAIMS = ("claims.md", "claims_numbers.md")
SHARED = ("colab_links.md", *CLAIMS, "fidelity.md", "checkers.md")  # in the repository's root
HANDBOOK = "handbook"  # every page below it is a page of the site, at the same place
FROM_README = ("routes", "course-map")  # parts of README.md whose place in index.md is @routes@, …
START = "@start@"  # in index.md, the place of the lines that fetch the course
REPOSITORY = "@repository@"  # a link's target in the pages of site/

_LINK = re.compile(r"(\]\(\s*<?)([^)\s>]+)")
_BADGE = re.compile(r"\[!\[(Open in \w+)\]\([^)]*\)\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>[ \t]*$', re.MULTILINE)
_SEEN = re.compile(rf" ?\[{SEEN}\]\([^)]*\)")
_NOWHERE = re.compile(r"\[([^\[\]]*)\]\(@nowhere@[^)]*\)")  # while the course has no name
_COMMENT = re.compile(r"<!--.*?-->[ \t]*\n?", re.DOTALL)


def lay_out(course: Course, copies: Mapping[str, NotebookNode], folder: Path) -> None:
    """Write what Sphinx needs into an empty folder.

    Parameters
    ----------
    course
        The table of contents.
    copies
        The executed lessons, by file name.
    folder
        Where to write; it is made.
    """
    root = course.path.parent.parent
    shutil.copytree(root / "site" / "_static", folder / "_static")
    shutil.copytree(root / "images", folder / "images")
    shutil.copy2(root / "site" / "conf.py", folder)
    if (root / HANDBOOK).is_dir():
        pages_only = shutil.ignore_patterns("*.ipynb")  # Sphinx would take each for a page
        shutil.copytree(root / HANDBOOK, folder / HANDBOOK, ignore=pages_only)
    pages = _pages(course, copies)
    for at, name in pages.items():
        if not at.endswith(".md") or at == "README.md":
            continue
        text = (root / at).read_text(encoding="utf-8")
        text = page_text(course, text.replace(START, start(course)), at, copies)
        if name == "index.md":
            readme = (root / "README.md").read_text(encoding="utf-8")
            for part in FROM_README:
                found = re.search(rf"(?s)<!-- {part}:begin -->\n(.*?)<!-- {part}:end -->", readme)
                text = text.replace(f"@{part}@", page_text(course, found[1], "README.md", copies))
            text += _contents(pages)
        (folder / name).write_text(text, encoding="utf-8")
    texts: dict[str, str] = {}
    for file, nb in copies.items():
        (folder / file).write_text(dumps(lesson_page(course, nb, file, copies)), encoding="utf-8")
        texts |= alternatives(nb)
    (folder / "alternatives.json").write_text(json.dumps(texts), encoding="utf-8")


def lesson_page(
    course: Course, nb: NotebookNode, file: str, lessons: Collection[str]
) -> NotebookNode:
    """Return an executed lesson as a page: links that lead on, a word on the run, the setup folded."""
    nb = copy.deepcopy(nb)
    cells, online = [], course.page("fidelity.md")
    for cell in nb.cells:
        if cell.get("id") == "footer":  # the site has its own way back and on
            continue
        if cell.cell_type == "markdown":
            cell.source = page_text(course, cell.source, f"notebooks/{file}", lessons)
            cell.source = _SEEN.sub("", cell.source)  # it is this page
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            data.pop(RESULT_MIME, None)  # for tests, not for readers
            if "text/html" in data:
                data["text/html"] = data["text/html"].replace(online, "fidelity.html")
        cells.append(cell)
        if cell.get("id") == "header":
            cells.append(_about_run(nb.metadata.get("course", {}).get("run")))
        elif cell.get("id") == "setup":
            cell.metadata.setdefault("tags", []).append("hide-input")
    nb.cells = cells
    return nb


def page_text(course: Course, text: str, at: str, lessons: Collection[str]) -> str:
    """Return Markdown of the repository as Markdown of the site.

    Comments go; badges, which are pictures from elsewhere, become buttons; a link to a page of the site
    leads there, any other link into the repository to GitHub, or nowhere while the course has no name.

    Parameters
    ----------
    at
        Where the text stands in the repository, such as ``"notebooks/01_devices.ipynb"``.
    lessons
        The lessons' files that the site has.
    """
    text = _COMMENT.sub("", text)
    text = _BADGE.sub(r'<a class="open-in" href="\2">\1</a>', text)
    text = _ANCHOR.sub(r"(\1)=", text)
    text = _LINK.sub(lambda m: m[1] + _target(course, at, m[2], lessons), text)
    return _NOWHERE.sub(r"\1", text)


def alternatives(nb: NotebookNode) -> dict[str, str]:
    """Return the alternative text of each picture among the outputs, by the SHA-256 of its bytes.

    MyST-NB names a picture's file by that sum, and has no other place for a text that belongs to one
    output.
    """
    found = {}
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            alt = output.get("metadata", {}).get("image/png", {}).get("alt")
            if alt:
                data = base64.b64decode(output.data["image/png"])
                found[hashlib.sha256(data).hexdigest()] = alt
    return found


def _target(course: Course, at: str, target: str, lessons: Collection[str]) -> str:
    home = f"https://github.com/{course.repository}" if course.repository else "@nowhere@"
    if target == REPOSITORY:
        return home
    folder = posixpath.dirname(at)
    if course.repository and target.startswith(course.page("")):
        target, folder = target.removeprefix(course.page("")), ""
    if re.match(r"[a-zA-Z][\w+.-]*:|//|#", target):
        return target
    place, _, fragment = target.partition("#")
    path = posixpath.normpath(posixpath.join(folder, unquote(place)))
    end = f"#{fragment}" if fragment else ""
    pages = _pages(course, lessons)
    goal = course.path.parent.parent / path
    carried = path.startswith(("images/", f"{HANDBOOK}/")) and goal.is_file()
    carried = carried and goal.suffix != ".ipynb"
    if path in pages or carried:
        here = posixpath.dirname(pages.get(at, ""))
        if path.endswith(".ipynb"):  # a notebook's own anchors are written in another way
            end = end and f"#{slug(unquote(fragment))}"
        return posixpath.relpath(pages.get(path, path), here or ".") + end
    if not goal.exists():
        return target  # Sphinx will say that it is dead
    kind = "tree" if goal.is_dir() else "blob"
    return f"{home}/{kind}/{course.branch}/{path}{end}"


def _pages(course: Course, lessons: Collection[str]) -> dict[str, str]:
    """Return the place on the site of each page, by its place in the repository."""
    root = course.path.parent.parent
    pages = {"README.md": "index.md", **{f"site/{name}": name for name in OWN}}
    pages |= {f"notebooks/{file}": file for file in sorted(lessons)} | {p: p for p in SHARED}
    return pages | {p: p for p in handbook_pages(root)}


def handbook_pages(root: Path) -> list[str]:
    """Return the handbook's pages, as places in the repository: those of its own folder first."""
    found = [p.relative_to(root).as_posix() for p in (root / HANDBOOK).rglob("*.md")]
    found = [place for place in found if place.split("/")[1] not in languages()]
    return sorted(found, key=lambda place: (place.count("/"), place))


def _about_run(run: Mapping[str, Any] | None) -> NotebookNode:
    if run is None:
        said = "This copy does not say where and when it ran."
    else:
        day = date.fromisoformat(run["date"])
        where = run["device"]
        if where != run["cpu"]:
            where += f" on {run['cpu']}"
        cores = "1 core" if run["cores"] == 1 else f"{run['cores']} cores"
        said = (
            f"The outputs are those of one run, on {day.day} {day:%B %Y}: PyTorch {run['torch']}, {where}, "
            f"{cores}. Yours will differ."
        )
    source = f'<p class="run">{said} Predictions are left empty and exercises unanswered.</p>'
    return nbformat.v4.new_markdown_cell(source, id="about-run")


def _contents(pages: Mapping[str, str]) -> str:
    parts = {
        "Lessons": [name for at, name in pages.items() if at.startswith("notebooks/")],
        "Handbook": [name for at, name in pages.items() if at.startswith(f"{HANDBOOK}/")],
        "More": ["about.md", *SHARED],
    }
    blocks = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *names, "```"])
        for caption, names in parts.items()
        if names
    ]
    return "\n" + "\n\n".join(blocks) + "\n"
