"""Links: find dead ones, and change the course's repository."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import yaml

from course_utils.course import Course
from course_utils.set_aside import is_dated
from course_utils.stubs import AuthoringError
from tools.authoring.anatomy import headings, without_code
from tools.authoring.form import Problem, cell_name, read

PAGES = ("README.md", "CONTRIBUTING.md", "colab_links.md", "AGENTS.md", "llms.txt")

_SUFFIX = {"zh": "zh-CN"}
_TARGET = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)"  # [text](target "title")
    r"|^ {0,3}\[[^\]^]+\]:\s*<?([^\s>]+)"  # [name]: target
    r"|<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)",
    re.MULTILINE | re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"(?:github\.com|google\.com/github)/([\w.-]+)/([\w.-]*\w)(?:/(?:blob|tree)/([^\s\"'<>)\]`?]*))?"
)


def translated_path(path: str, language: str) -> str:
    """Return the path of a page's or notebook's translation: ``handbook/zh/…``, ``README.zh-CN.md``."""
    if language == "en":
        return path
    folder, _, name = path.partition("/")
    if not name:
        return f"{path.removesuffix('.md')}.{_SUFFIX.get(language, language)}.md"
    return f"{folder}/{language}/{name}"


def texts_with_repository(course: Course, repository: str | None, branch: str) -> dict[Path, str]:
    """Return the new text, by path, of each file that changes with the course's repository; write nothing.

    These are course.yml, and the English notebooks and Markdown pages that contain the present repository;
    notebooks' links into it become relative. With None as ``repository`` (else ``owner/name``) it is cleared
    in course.yml, and pages stay as they are. Generated cells and parts are updated by ``notebooks --fix``.

    Raises
    ------
    AuthoringError
        If the new name or branch is not valid, or course.yml lacks a line to edit.
    """
    name = r"[a-z\d][a-z\d-]*/[\w.-]+(?<!\.git)"
    if repository is not None and not re.fullmatch(name, repository, re.ASCII | re.IGNORECASE):
        raise AuthoringError(
            f"{repository!r} is not a repository: write owner/name, as in  ada/pytorch-gpu-course"
        )
    if not re.fullmatch(r"\w+(?:(?:[./]|-+)\w+)*", branch, re.ASCII):
        raise AuthoringError(f"{branch!r} is not a branch: write a name such as  main")
    text = course.path.read_text(encoding="utf-8")
    for key, value in (("repository", repository or ""), ("branch", branch)):
        quoted = value if not value or yaml.safe_load(value) == value else f'"{value}"'
        old = rf"(?m)^{key}:(?:[ \t]*(?:\"[^\"\n]*\"|[^\s#]+))?"
        text, count = re.subn(old, f"{key}: {quoted}".rstrip(), text)
        if count != 1:
            raise AuthoringError(f"course.yml needs one line  {key}: …  at its top; it has {count}")
    new = {course.path: text}
    if course.repository:
        for path in filter(Path.is_file, [*_pages(course), *_notebooks(course)]):
            new[path] = _text_with_repository(course, path, repository, branch)
    return {path: text for path, text in new.items() if text != path.read_text(encoding="utf-8")}


def _text_with_repository(course: Course, path: Path, repository: str | None, branch: str) -> str:
    """Return a file's text with another repository and branch; a notebook's links into it become relative."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":  # notebooks --fix gives the link of a notebook its new address
        text = text.replace(f"]({course.page('')}", "](../")
    if repository is None:
        return text
    whole_name = rf"(?<![\w.-]){re.escape(course.repository)}(?![\w-]|\.(?!git)\w)"
    on_branch = rf"({whole_name}(?:/blob/|/tree/|/raw/|/|@)){re.escape(course.branch)}(?![\w.-])"
    text = re.sub(on_branch, lambda match: match[1] + branch, text)
    return re.sub(whole_name, repository, text)


def link_problems(course: Course) -> list[Problem]:
    """Return dead relative links and anchors, dead URLs into the repository, and URLs of copies of it.

    All English pages and notebooks are searched; other URLs are not requested.
    """
    problems: list[Problem] = []
    for path in _pages(course):
        if path.is_file():
            problems += _text_problems(course, path, "", path.read_text(encoding="utf-8"))
        else:
            problems.append(Problem(path.name, "", "does not exist", "write it"))
    for path in _notebooks(course):
        nb = read(path)
        for i, cell in enumerate(nb.cells):
            if cell.cell_type == "markdown":
                problems += _text_problems(course, path, cell_name(nb, i), cell.source)
    return problems


def anchors(path: Path) -> set[str]:
    """Return the anchors of a Markdown file or notebook: GitHub's for its headings, and explicit ones."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        text = "\n\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    seen: Counter[str] = Counter()
    names = set(re.findall(r"<a\b[^>]*?\b(?:id|name)=[\"']([^\"']+)", text))
    for heading in headings(text):
        name = slug(heading.text)
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def slug(heading: str) -> str:
    """Return the anchor that GitHub and the site generate for a heading's text."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"(?<!\w)_([^_]+)_(?!\w)", r"\1", re.sub("[`*]", "", text)).lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


def _text_problems(course: Course, path: Path, cell: str, text: str) -> Iterator[Problem]:
    """Yield the problems of the links in one page or cell."""
    for match in _TARGET.finditer(without_code(text)):
        target = next(filter(None, match.groups()))
        if not re.match(r"[a-zA-Z][\w+.-]*:|//", target) and (fault := _link_fault(course, path, target)):
            yield Problem(path.name, cell, f"dead link {target}: {fault}", "correct or remove it")
    owner, _, name = (course.repository or "").partition("/")
    for other, repository, inside in _ADDRESS.findall(text):
        if repository.removesuffix(".git") != name:
            continue
        on_branch, _, target = inside.rstrip(".,:;").partition(f"{course.branch}/")
        if other != owner:
            what = f"names another repository: {other}/{repository}"
            yield Problem(path.name, cell, what, "python -m course_utils links")
        elif on_branch not in ("", course.branch):
            what = f"address {inside} is not on branch {course.branch}"
            yield Problem(path.name, cell, what, "correct it")
        elif target and (fault := _link_fault(course, _root(course) / "README.md", target)):
            yield Problem(path.name, cell, f"dead address {target}: {fault}", "correct it")


def _link_fault(course: Course, path: Path, target: str) -> str | None:
    """Return why a link to a file or an anchor is dead, or None; ``target`` is relative to ``path``."""
    file, _, fragment = target.partition("#")
    goal = (path.parent / unquote(file)).resolve() if file else path.resolve()
    if not goal.is_relative_to(_root(course).resolve()):
        return "it leads out of the repository"
    if not goal.exists():
        return "no such file"
    if fragment and goal.suffix in {".md", ".ipynb"}:
        wanted = unquote(fragment)
        if not {wanted, slug(wanted)} & anchors(goal):
            return f"no heading #{fragment} there"
    return None


def _root(course: Course) -> Path:
    """Return the repository's root."""
    return course.path.parent.parent


def _pages(course: Course) -> list[Path]:
    """Return the paths of the English Markdown pages that are searched, sorted."""
    root = _root(course)
    pages = {p for room in ("handbook", "workshop") for p in (root / room).rglob("*.md")}
    there = (root / page for page in PAGES if (root / page).is_file())
    return sorted({*there, *root.glob("*/README.md"), *pages})


def _notebooks(course: Course) -> list[Path]:
    """Return the paths of the English notebooks, sorted, without dated copies that a reset set aside."""
    notebooks = course.path.parent.glob("*.ipynb")
    return sorted(path for path in notebooks if not is_dated(path.name))
