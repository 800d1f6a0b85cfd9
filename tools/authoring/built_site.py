"""What is wrong with a folder of HTML pages: dead links, pictures nobody can describe, foreign files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from bs4 import BeautifulSoup

_LOADED = "img[src], script[src], iframe[src], source[src], video[src]"
_LOADED_LINKS = ", ".join(
    f'link[rel="{rel}"]' for rel in ("stylesheet", "icon", "shortcut icon", "preload", "manifest")
)
_IN_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?(?:https?:)?//[^\s\"')]+", re.IGNORECASE)


def built_problems(folder: Path) -> list[str]:
    """List what is wrong with the pages below a folder, each as a sentence that names its page.

    A link must lead to a file and an anchor that exist; what a page loads must lie in the folder, so that
    it is whole without a network; a picture must have an alternative text. Links to other sites are not
    visited.
    """
    folder = folder.resolve()
    pages = {
        path: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for path in sorted(folder.rglob("*.html"))
        if "_static" not in path.relative_to(folder).parts  # the theme's own templates lie there
    }
    anchors = {
        path: {"top", *(tag.get("id") or tag["name"] for tag in page.select("[id], [name]"))}
        for path, page in pages.items()
    }
    problems = [] if pages else ["There is no page."]
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        problems += [f"{name}: {what}" for what in _page_problems(folder, path, page, anchors)]
    for path in sorted(folder.rglob("*.css")):
        name = path.relative_to(folder).as_posix()
        for match in _IN_STYLE.finditer(path.read_text(encoding="utf-8", errors="replace")):
            problems.append(f"{name}: loads from another site: {match[0]}")
    return problems


def _page_problems(
    folder: Path, path: Path, page: BeautifulSoup, anchors: dict[Path, set[str]]
) -> Iterator[str]:
    for picture in page.select("img"):
        if not picture.get("alt", "").strip():
            yield f"picture without alternative text: {picture.get('src', '')[:80]}"
    loads = [tag["src"] for tag in page.select(_LOADED)]
    loads += [tag.get("href", "") for tag in page.select(_LOADED_LINKS)]
    for load in loads:
        if urlsplit(load).netloc:
            yield f"loads from another site: {load}"
        elif not load.startswith("data:") and (fault := _dead(folder, path, load, anchors)):
            yield f"loads what is not there: {load} ({fault})"
    for link in dict.fromkeys(tag["href"] for tag in page.select("a[href]")):
        parts = urlsplit(link)
        if not (parts.scheme or parts.netloc) and (fault := _dead(folder, path, link, anchors)):
            yield f"dead link {link}: {fault}"


def _dead(folder: Path, path: Path, link: str, anchors: dict[Path, set[str]]) -> str | None:
    file, fragment = urldefrag(link)
    file = unquote(file.partition("?")[0])
    goal = (path.parent / file).resolve() if file else path
    if not goal.is_relative_to(folder):
        return "it leads out of the site"
    if goal.is_dir():
        goal /= "index.html"
    if not goal.is_file():
        return "no such file"
    if fragment and unquote(fragment) not in anchors.get(goal, {unquote(fragment)}):
        return f"no #{fragment} there"
    return None
