"""What is wrong with a folder of HTML pages: dead links, pictures nobody can describe, foreign files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

_FETCHED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "video": "src"}
_LOADED_LINKS = {"stylesheet", "icon", "preload", "shortcut icon", "manifest"}
_IN_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?(?:https?:)?//[^\s\"')]+", re.IGNORECASE)


@dataclass
class _Page(HTMLParser):
    """The anchors of a page, where it leads, what it loads, and its pictures without a text."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what one tag says."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if values.get(name)}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") in _LOADED_LINKS:
            self.loads.append(values.get("href", ""))
        elif tag in _FETCHED and values.get(_FETCHED[tag]):
            self.loads.append(values[_FETCHED[tag]])
        if tag == "img" and not values.get("alt", "").strip():
            self.silent.append(values.get("src", ""))


def built_problems(folder: Path) -> list[str]:
    """List what is wrong with the pages below a folder, each as a sentence that names its page.

    A link must lead to a file and an anchor that exist; what a page loads must lie in the folder, so that
    it is whole without a network; a picture must have an alternative text. Links to other sites are not
    visited.
    """
    pages = {
        path: _read(path)
        for path in sorted(folder.rglob("*.html"))
        if "_static" not in path.relative_to(folder).parts  # the theme's own templates lie there
    }
    found = [] if pages else ["There is no page."]
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        found += [f"{name}: {what}" for what in _page_problems(folder, path, page, pages)]
    for path in sorted(folder.rglob("*.css")):
        for match in _IN_STYLE.finditer(path.read_text(encoding="utf-8", errors="replace")):
            name = path.relative_to(folder).as_posix()
            found.append(f"{name}: loads from another site: {match[0]}")
    return found


def _read(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    page.close()
    return page


def _page_problems(
    folder: Path, path: Path, page: _Page, pages: dict[Path, _Page]
) -> Iterator[str]:
    for source in page.silent:
        yield f"picture without alternative text: {source[:80]}"
    for load in page.loads:
        if load.startswith("data:"):
            continue
        if urlsplit(load).netloc:
            yield f"loads from another site: {load}"
        elif fault := _dead(folder, path, load, pages):
            yield f"loads what is not there: {load} ({fault})"
    for link in dict.fromkeys(page.links):
        parts = urlsplit(link)
        if not (parts.scheme or parts.netloc) and (fault := _dead(folder, path, link, pages)):
            yield f"dead link {link}: {fault}"


def _dead(folder: Path, path: Path, link: str, pages: dict[Path, _Page]) -> str | None:
    place, fragment = urldefrag(link)
    place = unquote(place.partition("?")[0])
    goal = (path.parent / place).resolve() if place else path.resolve()
    if not goal.is_relative_to(folder.resolve()):
        return "it leads out of the site"
    if goal.is_dir():
        goal /= "index.html"
    if not goal.is_file():
        return "no such file"
    page = pages.get(folder / goal.relative_to(folder.resolve()))
    if fragment and page is not None and unquote(fragment) not in page.anchors | {"top"}:
        return f"no #{fragment} there"
    return None
