"""The gettext catalogues of a language: extracting texts from the course, reading, updating and writing them.

There is one .po file for each lesson, each package of helpers and content, and each page, in
``course_language/LANGUAGE/``.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract
from babel.messages.pofile import read_po, write_po

from course_lessons.shared.claims import weighing
from course_utils import files
from course_utils.cli.bootstrap import ROOT
from course_utils.course import load_course
from tools.authoring import guide, site
from tools.authoring.pages import WHOLE
from tools.authoring.translation import code, programs, prose

LANGUAGES = ROOT / "course_language"
GENERATED = frozenset({"course-map", "doors", "explorers", "lesson-links", "start", "short-path"})
"""Generated parts of pages that are generated in each language, not translated."""
_DATE = dt.datetime(2026, 11, 23, tzinfo=dt.timezone.utc)
"""The fixed date in the header that gettext requires, so that files change only with their texts."""
LOCALES = {"zh": "zh_CN"}
_CLAIMED = "course_lessons.shared"
"""The package whose catalogue contains the claims."""
_PAGES = ("README.md", "colab_links.md", "workshop/*.md", "handbook/*.md", "handbook/errors/*.md")
_PAGES += ("site/*.md",)


@dataclass(frozen=True)
class Text:
    """A text to translate (a pair of singular and plural, or one string), and where it occurs."""

    english: str | tuple[str, str]
    place: str


def sources(root: Path = ROOT) -> dict[str, Callable[[], Iterator[Text]]]:
    """Return a function for each catalogue that yields its texts; the keys are the catalogues' names.

    A name is ``course``, ``notebooks/…``, ``packages/…`` or ``pages/…``.
    """
    found: dict[str, Callable[[], Iterator[Text]]] = {"course": lambda: _course(root)}
    for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        found[f"notebooks/{path.stem}"] = lambda path=path: _notebook(path)
    for name, paths in sorted(_packages(root).items()):
        found[f"packages/{name}"] = lambda name=name, paths=paths: itertools.chain(
            _programs(root, paths), _claims(root) if name == _CLAIMED else ()
        )
    for pattern in _PAGES:
        for path in sorted(root.glob(pattern)):
            name = path.relative_to(root).as_posix()
            if name in WHOLE:
                continue
            found[f"pages/{name.removesuffix('.md')}"] = lambda path=path, name=name: _page(path, name)
    return found


def _packages(root: Path) -> dict[str, list[str]]:
    """Return each catalogue's modules (of a package or a lesson), as paths from the course's root."""
    found: dict[str, list[str]] = {}
    for package in ("course_utils", "course_lessons", "simgpu", "tools"):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            parts = name.split("/")
            of_lesson = package == "course_lessons" and len(parts) > 2
            found.setdefault(f"{package}.{parts[1]}" if of_lesson else package, []).append(name)
    return found


def _course(root: Path) -> Iterator[Text]:
    """Yield the texts of course_language, the site, course.yml and others' published results."""
    own = sorted((root / "course_language").glob("*.py"))
    yield from _programs(root, [path.relative_to(root).as_posix() for path in own])
    yield from (Text(text, "the site") for text in site.WORDS.values())
    raw = yaml.safe_load((root / "notebooks" / "course.yml").read_text(encoding="utf-8"))
    for lesson in raw["lessons"]:
        goals = enumerate(lesson.get("objectives", ()), 1)
        texts = {name: lesson.get(name, "") for name in ("title", "question", "hardware")}
        texts |= {f"objective {number}": goal for number, goal in goals}
        texts |= {
            f"section {stop['section']}": stop["section"]
            for stop in lesson.get("short_path", ())
            if "section" in stop
        }
        for name, text in texts.items():
            if text:
                yield Text(str(text), f"{lesson['id']} {name}")
    yield from (Text(text, "what others published") for text in _published(root) if _WORDED(text))


_WORDED = re.compile(r"\b[a-z]{2,}\b|^a ").search


def _published(root: Path) -> Iterator[str]:
    """Yield the texts in records of others' work: titles of traces, and what ran on which device."""
    folder = root / "course_lessons" / "recorded"
    index = json.loads((folder / "traces" / "index.json").read_text(encoding="utf-8"))
    yield from (about["title"] for about in index.values())
    results = json.loads((folder / "published.json").read_text(encoding="utf-8"))["results"]
    yield from (result["parameters"].get("work", "") for result in results)
    yield from (result["device"] for result in results)


def _claims(root: Path) -> Iterator[Text]:
    """Yield the translatable texts of the claims."""
    path = weighing.FILE.relative_to(ROOT).as_posix()
    for claim in weighing.read(yaml.safe_load((root / path).read_text(encoding="utf-8"))):
        texts = (getattr(claim, name) for name in weighing.TRANSLATED)
        yield from (Text(text, path) for text in texts if " " in text.strip())


def _notebook(path: Path) -> Iterator[Text]:
    """Yield the texts of a notebook's Markdown and code cells, except generated cells."""
    course = load_course(path.parent / "course.yml")
    home = course.page("") if course.repository else ""  # with a repository, links are GitHub URLs
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    own_cells = [cell for cell in cells if "generated" not in cell["metadata"].get("tags", ())]
    sources = {cell["id"]: "".join(cell["source"]) for cell in own_cells}
    keys = code.keys(sources[cell["id"]] for cell in own_cells if cell["cell_type"] == "code")
    for cell in own_cells:
        source = sources[cell["id"]]
        prosaic = cell["cell_type"] == "markdown"
        taken = prose.pieces(source) if prosaic else code.pieces(source, keys)
        for text in taken:
            yield Text(text.replace(home, "../") if home else text, cell["id"])


def _programs(root: Path, paths: Iterable[str]) -> Iterator[Text]:
    """Yield the texts that Babel extracts from Python files."""
    for path in paths:
        with (root / path).open("rb") as file:
            for _line, message, _comments, _context in extract(programs.messages, file, programs.KEYWORDS):
                yield Text(message, path)


def _page(path: Path, name: str) -> Iterator[Text]:
    """Yield the texts of a Markdown page, except its generated parts in `GENERATED`."""
    for text in prose.pieces(path.read_text(encoding="utf-8"), GENERATED):
        if not (name == guide.PAGE and guide.ROW.fullmatch(text)):  # made of titles, which have translations
            yield Text(text, name)


def catalogue_path(name: str, language: str) -> Path:
    """Return the path of a catalogue's .po file."""
    return LANGUAGES / language / f"{name}.po"


def load(path: Path, language: str = "zh") -> Catalog:
    """Return the catalogue in a .po file, or an empty one if there is no file."""
    if not path.exists():
        return _empty(language)
    with path.open("rb") as file:
        return read_po(file, locale=LOCALES.get(language, language))


def _empty(language: str) -> Catalog:
    """Return an empty catalogue with a fixed header."""
    return Catalog(
        locale=LOCALES.get(language, language),
        project="GPU Training with PyTorch",
        version="1",
        charset="utf-8",
        fuzzy=False,
        header_comment="# GPU Training with PyTorch",
        creation_date=_DATE,
        revision_date=_DATE,
        last_translator="the course",
        language_team="the course",
    )


def untranslated_catalogue(found: Iterable[Text], language: str = "zh") -> Catalog:
    """Return a catalogue that contains these texts without translations."""
    catalog = _empty(language)
    for text in found:
        catalog.add(text.english, locations=[(text.place, None)])
    return catalog


def update(name: str, found: Iterable[Text], language: str, known: dict[str, str]) -> Catalog:
    """Return the stored catalogue merged with the present texts of its source; write nothing.

    Translations of changed texts are marked fuzzy, texts that no longer occur are dropped. ``known`` maps
    English texts to translations in any catalogue, which fill in missing and fuzzy ones.
    """
    old, new = load(catalogue_path(name, language), language), untranslated_catalogue(found, language)
    old.update(new, update_creation_date=False)
    old.obsolete.clear()
    old.revision_date = old.creation_date = _DATE
    for entry in old:
        if entry.id and (not entry.string or entry.fuzzy) and entry.id in known:
            entry.string = known[entry.id]
            entry.flags.discard("fuzzy")
    return old


def dumps(catalog: Catalog) -> bytes:
    """Return a catalogue as the bytes of its .po file, without the header line that names Babel's version."""
    for entry in catalog:
        entry.flags.discard("python-format")
        entry.flags.discard("python-brace-format")
    out = io.BytesIO()
    write_po(out, catalog, width=0, sort_output=False, ignore_obsolete=True, include_lineno=False)
    return re.sub(rb'^"Generated-By: .*\n', b"", out.getvalue(), flags=re.MULTILINE)


def save(catalog: Catalog, path: Path) -> None:
    """Write a catalogue to a .po file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, dumps(catalog))


def finished(catalog: Catalog) -> list[Message]:
    """Return the messages that have a translation that is not fuzzy."""
    return [entry for entry in catalog if entry.id and entry.string and not entry.fuzzy]


def translations(language: str, prefix: str = "") -> dict[str, str]:
    """Return the finished translations of a language, by English text.

    ``prefix`` selects catalogues by the beginning of their path, such as ``pages/``.
    """
    found: dict[str, str] = {}
    for path in sorted((LANGUAGES / language).rglob("*.po")):
        if path.relative_to(LANGUAGES / language).as_posix().startswith(prefix):
            found |= {entry.id: entry.string for entry in finished(load(path))}
    return found


def update_all(language: str) -> None:
    """Update the .po files of a language from their sources, and delete those without a source."""
    known, every = translations(language), sources()
    for path in (LANGUAGES / language).rglob("*.po"):
        if path.relative_to(LANGUAGES / language).as_posix().removesuffix(".po") not in every:
            path.unlink()
    for name, found in every.items():
        save(update(name, found(), language, known), catalogue_path(name, language))
