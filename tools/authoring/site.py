"""Generates the source of the web site, from which Sphinx builds it: executed lessons and pages."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import posixpath
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import nbformat
from nbformat import NotebookNode

from course_language import languages, own_name, translation
from course_utils.course import Course
from course_utils.exercises.result import RESULT_MIME
from course_utils.show import REAL_GPUS
from tools.authoring.cells import site
from tools.authoring.form import dumps
from tools.authoring.links import slug, translated_path

OWN = ("index.md", "about.md", "404.md")  # in site/, and written for it
COLAB = "colab_links.md"  # in the repository's root
HANDBOOK = "handbook"  # every page below it is a page of the site, at the same place
GLOSSARY = f"{HANDBOOK}/glossary.md"
# Parts of README.md: their place in index.md is @start@, …
FROM_README = ("what", "goals", "start", "routes", "course-map")
REPOSITORY = "@repository@"  # a link's target in the pages of site/
CONTENTS = {  # the sidebar's parts, by the key of their caption; a lesson is a file of its own
    "begin": ("handbook/routes.md", "handbook/short_path.md", COLAB, "about.md"),
    "lessons": (),
    "handbook": tuple(
        f"handbook/{name}.md"
        for name in (
            "errors", "templates", "cheatsheet", "practices",
            "machines", "glossary", "explorers", "benchmark",
        )
    ),
    "trust": tuple(f"handbook/{name}.md" for name in ("fidelity", "claims", "checkers")),
}  # fmt: skip
FOLDED = {"handbook/errors.md": "handbook/errors/", "handbook/claims.md": "handbook/claims_"}
"""Pages that the sidebar folds under another: that one's path, and how the others' paths begin."""
WORDS = {  # the site's own texts
    "title": "GPU Training with PyTorch",
    "licence": "Text and pictures: CC BY 4.0. Code: Apache-2.0.",
    "lessons": "Lessons",
    "begin": "Start",
    "handbook": "Handbook",
    "trust": "How far to trust it",
    "read": "Begin with lesson {lesson}",
    "open": "Open {lesson} in Colab",
    "here": "Run it on your machine",
    "source": "Source on GitHub",
    "print": "On one sheet, to print",
    "unknown": "This copy does not say where and when it ran. "
    "Predictions are left empty and exercises unanswered.",
    "run": "The outputs are those of one run, on {date}: PyTorch {torch}, {where}, {cores}. "
    "Yours will differ. Predictions are left empty and exercises unanswered.",
    "on": "{device} on {cpu}",
    "core": "1 core",
    "cores": "{cores} cores",
}

_LINK = re.compile(r"(\]\(\s*<?)([^)\s>]+)")
_BADGE = re.compile(r"\[!\[([^\]]+)\]\(https:[^)]*\)\]\(([^)\s]+)\)")
_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>[ \t]*$', re.MULTILINE)
_NOWHERE = re.compile(r"\[([^\[\]]*)\]\(@nowhere@[^)]*\)")  # links without a repository
_COMMENT = re.compile(r"<!--.*?-->[ \t]*\n?", re.DOTALL)


def words(language: str) -> dict[str, str]:
    """Return the site's own texts in a language, with the keys of `WORDS`."""
    return {name: translation(language).gettext(text) for name, text in WORDS.items()}


def write_sphinx_source(
    course: Course, copies: Mapping[str, NotebookNode], folder: Path, language: str = "en"
) -> None:
    """Write the source folder from which Sphinx builds one language's site.

    ``copies`` are the executed lessons by file name. ``folder`` gets pages, lessons, pictures, configuration
    and ``alternatives.json`` (see `alternatives`).
    """
    root = course.path.parent.parent
    not_here = shutil.ignore_patterns("*.ipynb", "*.md", "_build", *languages())  # pages are written below
    for name in ("site", HANDBOOK):
        goal = folder if name == "site" else folder / name
        shutil.copytree(root / name, goal, ignore=not_here, dirs_exist_ok=True)
    shutil.copytree(root / "images", folder / "images")
    pages, readme = _pages(course, copies, language), translated_path("README.md", language)

    def converted(path: str, text: str) -> str:
        """Return Markdown of the page at ``path`` as Markdown of the site."""
        return page_text(course, text, path, copies, language)

    for path, name in pages.items():
        if not path.endswith(".md") or path == readme:
            continue
        text = converted(path, (root / path).read_text(encoding="utf-8"))
        if name == "index.md":
            whole = (root / readme).read_text(encoding="utf-8")
            for part in FROM_README:
                match = re.search(rf"(?s)<!-- {part}:begin -->\n(.*?)\n<!-- {part}:end -->", whole)
                text = text.replace(f"@{part}@", converted(readme, match[1]))
            text = text.replace("@doors@", _doors(course, copies, language))
            text += _contents(pages, words(language))
        elif name == "404.md":
            text = f"---\norphan: true\nnosearch: true\n---\n{text}"
        elif name in FOLDED:
            below = [one for one in pages.values() if one.startswith(FOLDED[name])]
            below = [posixpath.relpath(one, posixpath.dirname(name)) for one in below]
            text += "\n" + _toctree(below) if below else ""
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    texts: dict[str, str] = {}
    for file, nb in copies.items():
        page = lesson_page(course, nb, file, copies, language)
        (folder / file).write_text(dumps(page), encoding="utf-8")
        texts |= alternatives(nb)
    (folder / "alternatives.json").write_text(json.dumps(texts), encoding="utf-8")


def lesson_page(
    course: Course, nb: NotebookNode, file: str, lessons: Collection[str], language: str = "en"
) -> NotebookNode:
    """Return an executed lesson as a page of the site.

    Links lead to pages of the site, a cell says when and where it ran, and the footer and the cell that
    fetches the course's helpers are dropped. ``lessons`` are the files of all lessons on the site.
    """
    nb = copy.deepcopy(nb)
    cells = []
    online = rf"(\.\./)?{re.escape(course.page(REAL_GPUS))}"  # one level more in notebooks/zh/
    fidelity = posixpath.relpath("handbook/fidelity.html", "." if language == "en" else language)
    # Links to this page itself, or to languages that the site's switch has.
    own = [rf"(?: · )?\[({'|'.join(map(own_name, languages()))})\]\([^)]*\)"]
    if course.repository:
        own.append(rf" ?\[[^\]]*\]\({re.escape(site(course.repository))}[^)]*\)")
    for cell in nb.cells:
        if cell.get("id") in ("fetch", "footer"):  # the site has its own navigation
            continue
        if cell.cell_type == "markdown":
            if cell.get("id") == "header":
                cell.source = re.sub("|".join(own), "", cell.source)
            path = translated_path(f"notebooks/{file}", language)
            cell.source = page_text(course, cell.source, path, lessons, language)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            data.pop(RESULT_MIME, None)  # for tests, not for readers
            if "text/html" in data:
                data["text/html"] = re.sub(online, fidelity, data["text/html"])
        cells.append(cell)
        if cell.get("id") == "header":
            cells.append(_run_cell(nb.metadata.get("course", {}).get("run"), words(language)))
    nb.cells = cells
    return nb


def page_text(course: Course, text: str, path: str, lessons: Collection[str], language: str = "en") -> str:
    """Return Markdown of the repository as Markdown of the site.

    Comments are removed; badges, which are pictures from other sites, become buttons; a link to a page of the
    site leads there, any other link into the repository to GitHub, or is removed while the course has no
    repository.

    Parameters
    ----------
    path
        The text's path in the repository, such as ``"notebooks/01_devices.ipynb"``.
    lessons
        The files of the lessons on the site.
    language
        The text's language. Pages without a translation, and anchors that may occur on several pages, are
        linked as ``site:PAGE.html``; the former are linked in English.
    """
    text = _COMMENT.sub("", text)
    text = _BADGE.sub(r'<a class="open-in" href="\2">\1</a>', text)
    text = _ANCHOR.sub(r"(\1)=" if language == "en" else r'<div id="\1"></div>\n', text)
    if path == translated_path(GLOSSARY, language):
        text = _indexed(text)
    if _LINK.search(text):
        pages, english = (_pages(course, lessons, name) for name in (language, "en"))
        text = _LINK.sub(
            lambda m: m[1] + _site_link_target(course, path, m[2], pages, english, language), text
        )
    return _NOWHERE.sub(r"\1", text)


def _indexed(text: str) -> str:
    """Return the glossary with an index entry for each term, so that the search opens it."""

    def entry(found: re.Match[str]) -> str:
        """Return a term's anchor and first words, below its entries: the term, and its English."""
        names = [name for name in re.split(r"[（(]|[）)]", found[2].replace("`", "")) if name.strip()]
        lines = [f"```{{index}} ! single: {name.strip()}\n```\n" for name in names if not set(";!") & {*name}]
        if found[1].startswith("<"):
            return "\n".join([found[1], "", *lines, f"**{found[2]}**"])
        return "\n".join([*lines, found[0]])

    return re.sub(r'(?m)^(\([\w-]+\)=|<div id="[\w-]+"></div>)\n+\*\*(.+?)\*\*', entry, text)


def alternatives(nb: NotebookNode) -> dict[str, str]:
    """Return the alternative text of each PNG output, by the SHA-256 of its bytes.

    MyST-NB names a picture's file by that hash, and has no other place for a text that belongs to one output.
    """
    texts = {}
    for cell in nb.cells:
        for output in cell.get("outputs", ()):
            alt = output.get("metadata", {}).get("image/png", {}).get("alt")
            if alt:
                data = base64.b64decode(output.data["image/png"])
                texts[hashlib.sha256(data).hexdigest()] = alt
    return texts


def _site_link_target(
    course: Course,
    path: str,
    target: str,
    pages: Mapping[str, str],
    english: Mapping[str, str],
    language: str,
) -> str:
    """Return the target on the site for a link in the page at ``path``.

    ``pages`` and ``english`` are what `_pages` returns for the language and for English.
    """
    home = f"https://github.com/{course.repository}" if course.repository else "@nowhere@"
    if target == REPOSITORY:
        return home
    folder = posixpath.dirname(path)
    if course.repository and target.startswith(course.page("")):
        target, folder = target.removeprefix(course.page("")), ""
    if re.match(r"[a-zA-Z][\w+.-]*:|//|#", target):
        return f"site:{target}" if target[0] == "#" and language != "en" else target
    file, _, fragment = target.partition("#")
    linked = posixpath.normpath(posixpath.join(folder, unquote(file)))
    anchor = f"#{fragment}" if fragment else ""
    goal = course.path.parent.parent / linked
    here = posixpath.dirname(pages.get(path, ""))
    page = posixpath.join(language, pages[linked]) if linked in pages else english.get(linked, "")
    named = fragment and goal.suffix == ".md" and f'<a id="{fragment}">' in goal.read_text("utf-8")
    if language != "en" and page and (named or linked not in pages):
        html = posixpath.splitext(page)[0] + ".html"
        return f"site:{posixpath.relpath(html, posixpath.join(language, here))}{anchor}"
    copied = linked.startswith(("images/", f"{HANDBOOK}/")) and goal.suffix != ".ipynb"
    if linked in pages or (copied and goal.is_file()):
        if linked.endswith(".ipynb"):  # anchors of a notebook on the site are formed differently
            anchor = anchor and f"#{slug(unquote(fragment))}"
        return posixpath.relpath(pages.get(linked, linked), here or ".") + anchor
    if not goal.exists():
        return target  # Sphinx will report it as dead
    kind = "tree" if goal.is_dir() else "blob"
    return f"{home}/{kind}/{course.branch}/{linked}{anchor}"


def _pages(course: Course, lessons: Collection[str], language: str) -> dict[str, str]:
    """Return the path on a language's site of each page, by its path in the repository."""
    root = course.path.parent.parent
    pages = {"README.md": "index.md", **{f"site/{name}": name for name in OWN}}
    pages |= {f"notebooks/{file}": file for file in sorted(lessons)} | {COLAB: COLAB}
    pages |= {p: p for p in handbook_pages(root)}
    if language != "en":
        pages = {translated_path(path, language): name for path, name in pages.items()}
        pages = {path: name for path, name in pages.items() if (root / path).is_file()}
    return pages


def handbook_pages(root: Path) -> list[str]:
    """Return the handbook's English pages as paths in the repository: first those not in a subfolder."""
    pages = [path.relative_to(root).as_posix() for path in (root / HANDBOOK).rglob("*.md")]
    pages = [path for path in pages if path.split("/")[1] not in languages()]
    return sorted(pages, key=lambda path: (path.count("/"), path))


def _run_cell(run: Mapping[str, Any] | None, words: Mapping[str, str]) -> NotebookNode:
    """Return the Markdown cell that says where and when a lesson ran; ``run``: see `copies.machine_facts`."""
    text = words["unknown"]
    if run is not None:
        where = run["cpu"] if run["device"] == run["cpu"] else words["on"].format(**run)
        cores = words["core" if run["cores"] == 1 else "cores"].format(**run)
        text = words["run"].format(**{**run, "where": where, "cores": cores})
    return nbformat.v4.new_markdown_cell(f'<p class="run">{text}</p>', id="about-run")


def _doors(course: Course, lessons: Collection[str], language: str) -> str:
    """Return the first page's line of links, as Markdown: only those that lead somewhere."""
    texts, first = words(language), course.ready[0]
    ways = [("read", first.file)] if first.file in lessons else []
    if course.repository:
        path = translated_path(f"notebooks/{first.file}", language)
        place = f"{course.repository}/blob/{course.branch}/{path}"
        ways.append(("open", f"https://colab.research.google.com/github/{place}"))
    ways.append(("here", "#start" if language == "en" else "site:#start"))
    if course.repository:
        ways.append(("source", f"https://github.com/{course.repository}"))
    return " ".join(
        f"[{texts[name].format(lesson=first.id)}]({target}){{.door{' .first' * (i == 0)}}}"
        for i, (name, target) in enumerate(ways)
    )


def _toctree(names: Collection[str], caption: str = "") -> str:
    """Return a hidden table of contents (toctree), which the sidebar shows."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["```{toctree}", *options, "", *names, "```", ""])


def _contents(pages: Mapping[str, str], words: Mapping[str, str]) -> str:
    """Return the hidden tables of contents of the first page: the parts of the sidebar."""
    there = set(pages.values())
    parts = {caption: [name for name in names if name in there] for caption, names in CONTENTS.items()}
    parts["lessons"] = sorted(name for name in there if name.endswith(".ipynb"))
    return "\n" + "\n".join(_toctree(names, words[caption]) for caption, names in parts.items() if names)
