"""How far a translation is, and what in it is out of step with the English."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tools.authoring.translation import catalogues, checks


def table(language: str) -> list[str]:
    """Return a line for each catalogue: how many of its texts are translated."""
    lines = []
    for name in catalogues.sources():
        catalog = catalogues.load(catalogues.catalogue(name, language), language)
        done, count = len(catalogues.finished(catalog)), len(catalog)
        lines.append(f"{name:40} {done:5} of {count:5}  {done / count if count else 1:6.1%}")
    return lines


def problems(language: str) -> list[str]:
    """Return all that is wrong: texts without a translation, changed, gone, or translated into something
    else."""
    base = catalogues.LANGUAGES / language / "terms.tsv"
    sources = catalogues.sources()
    found = [problem for name in sources for problem in _of(name, sources[name](), language, base)]
    for path in sorted((catalogues.LANGUAGES / language).rglob("*.po")):
        name = path.relative_to(catalogues.LANGUAGES / language).as_posix().removesuffix(".po")
        if name not in sources:
            found.append(f"{name}: a catalogue of nothing; remove it")
    return found


def _of(name: str, texts: Iterable[catalogues.Text], language: str, base) -> Iterator[str]:
    old = catalogues.load(catalogues.catalogue(name, language), language)
    have = {entry.id: entry for entry in old if entry.id}
    want = {entry.id: entry for entry in catalogues.fresh(texts, language) if entry.id}
    for key, entry in want.items():
        english = entry.id if isinstance(entry.id, str) else entry.id[-1]
        place = f"{name}, {entry.locations[0][0]}: {_brief(english)}"
        mine = have.pop(key, None)
        if mine is None:
            yield f"{place}: new or changed, and not in the catalogue"
        elif mine.fuzzy:
            yield f"{place}: changed; its translation is of the text before"
        else:
            yield from (
                f"{place}: {problem}"
                for other in ([mine.string] if isinstance(mine.string, str) else mine.string)
                for problem in checks.problems(english, other, base)
            )
    for english in have:
        yield f"{name}: {_brief(str(english))}: no longer in the course"


def _brief(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 70 else text[:67] + "…")
