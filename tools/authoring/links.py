"""Links: find the dead ones, and move the course to another repository."""

from __future__ import annotations

import dataclasses
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

PAGES = ("README.md", "CONTRIBUTING.md", "colab_links.md")
RENAME = "python -m course_utils links"

_SUFFIX = {"zh": "zh-CN"}
_TARGET = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+[\"'][^)]*)?\)"  # [text](target "title")
    r"|^ {0,3}\[[^\]^]+\]:\s*<?([^\s>]+)"  # [name]: target
    r"|<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']([^\"']+)",
    re.MULTILINE | re.IGNORECASE,
)
_HOME = re.compile(
    r"(git\+https://github\.com/|github\.com/|google\.com/github/|raw\.githubusercontent\.com/)"
    r"([\w.-]+)/([\w.-]*[\w-])([^\s\"'<>)\]`]*)"
)


def place(path: str, language: str) -> str:
    """Return where the translation of a notebook or a page stands: ``handbook/zh/…``, ``README.zh-CN.md``."""
    if language == "en":
        return path
    folder, _, name = path.partition("/")
    if not name:
        return f"{path.removesuffix('.md')}.{_SUFFIX.get(language, language)}.md"
    return f"{folder}/{language}/{name}"


def check_repository(repository: str) -> str:
    """Return ``owner/name`` if it is one that GitHub accepts.

    Raises
    ------
    AuthoringError
        If it is not; the message says what form it must have.
    """
    valid = re.fullmatch(r"[A-Za-z0-9](?:[A-Za-z0-9]|-(?!-|/)){0,38}/[\w.-]{1,100}", repository)
    name = repository.rpartition("/")[2]
    if not valid or not repository.isascii() or name in {".", ".."} or name.endswith(".git"):
        raise AuthoringError(
            f"{repository!r} is not a repository: write owner/name, as in  ada/pytorch-gpu-course"
        )
    return repository


def check_branch(branch: str) -> str:
    """Return the branch if git accepts its name, else raise AuthoringError."""
    bad = re.search(r"\.\.|//|/$|^[/.-]|\.$|\.lock$", branch)
    if bad or not re.fullmatch(r"[A-Za-z0-9_./-]+", branch):
        raise AuthoringError(f"{branch!r} is not a branch: write a name such as  main")
    return branch


def moved(course: Course, repository: str | None, branch: str) -> tuple[Course, dict[Path, str]]:
    """Return the course under its new name, or under none, and the new text of each file that this changes.

    Generated cells and parts are not renewed here: ``notebooks --fix`` does that.

    Raises
    ------
    AuthoringError
        If the new name or branch is not valid, or course.yml lacks a line to edit.
    """
    if repository is not None:
        check_repository(repository)
    check_branch(branch)
    text = course.path.read_text(encoding="utf-8")
    for key, value in (("repository", repository), ("branch", branch)):
        shown = "" if value is None else value if yaml.safe_load(value) == value else f'"{value}"'
        pattern = rf"(?m)^{key}:(?:[ \t]*(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s#]+))?"
        text, count = re.subn(pattern, f"{key}: {shown}".rstrip(), text)
        if count != 1:
            raise AuthoringError(f"course.yml needs one line  {key}: …  at its top; it has {count}")
    new = {course.path: text}
    for path in [*_pages(course), *_notebooks(course)] if course.repository else []:
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            new[path] = _renamed(course, text, repository, branch, path.suffix == ".ipynb")
    new = {path: text for path, text in new.items() if text != path.read_text(encoding="utf-8")}
    return dataclasses.replace(course, repository=repository, branch=branch), new


def _renamed(course: Course, text: str, repository: str | None, branch: str, cells: bool) -> str:
    """Return a text with the addresses that it has of a course with a name under another, or under none."""
    if repository is None:
        return text.replace(f"]({course.page('')}", "](../") if cells else text
    old_name = rf"(?<![\w.-]){re.escape(course.repository)}(?![\w-]|\.(?!git)\w)"
    text = re.sub(old_name, lambda _: repository, text)
    old_branch = (
        rf"((?:{re.escape(repository)}(?:/(?:blob|tree|raw)/|@)"
        rf"|raw\.githubusercontent\.com/{re.escape(repository)}/))"
        rf"{re.escape(course.branch)}(?![\w.-])"
    )
    return re.sub(old_branch, lambda m: m[1] + branch, text)


def link_problems(course: Course) -> list[Problem]:
    """List dead relative links and anchors, badges without a target, and names of other homes.

    Addresses outside the repository are not visited.
    """
    problems: list[Problem] = []
    for path in _pages(course):
        if path.is_file():
            problems += _text_problems(course, path, "", path.read_text(encoding="utf-8"), True)
        else:
            problems.append(Problem(path.name, "", "does not exist", "write it"))
    for path in _notebooks(course):
        nb = read(path)
        for i, cell in enumerate(nb.cells):
            is_prose = cell.cell_type == "markdown"
            problems += _text_problems(course, path, cell_name(nb, i), cell.source, is_prose)
    path = _root(course) / "pyproject.toml"
    if path.is_file():
        problems += _text_problems(course, path, "", path.read_text(encoding="utf-8"), False)
    return problems


def anchors(path: Path) -> set[str]:
    """Return the anchors of a Markdown file or a notebook, as GitHub forms them."""
    if path.suffix == ".ipynb":
        prose = (cell.source for cell in read(path).cells if cell.cell_type == "markdown")
        text = "\n\n".join(prose)
    else:
        text = path.read_text(encoding="utf-8")
    seen: Counter[str] = Counter()
    names = set(re.findall(r"<a\b[^>]*?\b(?:id|name)=[\"']([^\"']+)", text))
    for heading in headings(text):
        name = slug(heading.text)
        names.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return names


def _text_problems(
    course: Course, path: Path, cell: str, text: str, is_prose: bool
) -> Iterator[Problem]:
    file = path.name
    for what, mend in _home_problems(course, text):
        yield Problem(file, cell, what, mend)
    if not is_prose:
        return
    for match in _TARGET.finditer(without_code(text)):
        target = next(group for group in match.groups() if group)
        fault = _dead(course, path, target)
        if fault:
            yield Problem(file, cell, f"dead link {target}: {fault}", "correct or remove the link")


def _dead(course: Course, path: Path, target: str) -> str | None:
    if re.match(r"[a-zA-Z][\w+.-]*:|//", target):
        return None
    place, _, fragment = target.partition("#")
    root = _root(course).resolve()
    goal = (path.parent / unquote(place)).resolve() if place else path.resolve()
    if not goal.is_relative_to(root):
        return "it leads out of the repository"
    if not goal.exists():
        return "no such file"
    if fragment and goal.suffix in {".md", ".ipynb"}:
        wanted = unquote(fragment)
        if wanted not in anchors(goal) and slug(wanted) not in anchors(goal):
            return f"no heading #{fragment} there"
    return None


def _home_problems(course: Course, text: str) -> Iterator[tuple[str, str]]:
    owner, _, name = (course.repository or "").partition("/")
    files = {lesson.file for lesson in course.lessons}
    for match in _HOME.finditer(text):
        prefix, o, n, rest = match.groups()
        n = n.removesuffix(".git")
        if f"{o}/{n}" != course.repository:
            lesson_file = rest.partition("#")[0].rpartition("/")[2] in files
            if prefix.startswith("git+") or n == name or lesson_file:
                yield f"names another repository: {o}/{n}", RENAME
            continue
        yield from _inside(course, prefix, rest)
    without_urls = _HOME.sub("", text)
    for match in re.finditer(rf"\bclone ([\w-]+)/{re.escape(name)}(?![\w-])", without_urls):
        if name and match[1] != owner:
            yield f"names another repository: {match[1]}/{name}", RENAME


def _inside(course: Course, prefix: str, rest: str) -> Iterator[tuple[str, str]]:
    """Judge what follows ``owner/name`` in an address into this repository."""
    if prefix.startswith("git+"):
        branch = rest.partition("@")[2]
        if branch and branch != course.branch:
            yield f"fetches branch {branch}, not {course.branch}", "correct the address"
        return
    top = _root(course) / "README.md"  # what the repository's own address shows
    rest, _, fragment = rest.rstrip(".,:;").partition("#")
    kind = "/" if "raw." in prefix else r"/(?:blob|tree|raw)/"
    if not re.match(kind, rest):
        if not rest and fragment and (fault := _dead(course, top, f"#{fragment}")):
            yield f"dead address: {fault}", "correct the address"
        return
    found = re.match(rf"{kind}{re.escape(course.branch)}(?:/([^?]*))?(?:\?|$)", rest)
    if not found:
        yield f"address {rest} is not on branch {course.branch}", "correct the address"
    elif not (_root(course) / unquote(found[1] or "")).exists():
        yield f"address names a file that does not exist: {found[1]}", "correct the address"
    elif fragment and (fault := _dead(course, top, f"{found[1] or ''}#{fragment}")):
        yield f"dead address {found[1]}: {fault}", "correct the address"


def slug(heading: str) -> str:
    """Return a heading's anchor, as GitHub and the site form it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"(?<!\w)_([^_]+)_(?!\w)", r"\1", re.sub("[`*]", "", text)).lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


def _root(course: Course) -> Path:
    return course.path.parent.parent


def _pages(course: Course) -> list[Path]:
    root = _root(course)
    found = {p for room in ("handbook", "workshop") for p in (root / room).rglob("*.md")}
    return sorted({*(root / page for page in PAGES), *root.glob("*/README.md"), *found})


def _notebooks(course: Course) -> list[Path]:
    found = course.path.parent.glob("*.ipynb")
    return sorted(path for path in found if not is_dated(path.name))
