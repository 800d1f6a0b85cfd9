"""The progress of a translation, and its problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tools.authoring.translation import catalogues, checks


def progress_lines(language: str) -> list[str]:
    """Return a line for each incomplete .po catalogue, with translated and total messages, and a sum.

    Fuzzy messages do not count as translated.
    """
    lines, done_in_all, count_in_all = [], 0, 0
    for name in catalogues.sources():
        catalog = catalogues.load(catalogues.catalogue_path(name, language), language)
        done, count = len(catalogues.finished(catalog)), len(catalog)
        if done < count:
            lines.append(f"{name:40} {done:5} of {count:5}  {done / count:6.1%}")
        done_in_all, count_in_all = done_in_all + done, count_in_all + count
    return [*lines, f"{done_in_all:,} of {count_in_all:,} texts are translated."]


def problems(language: str) -> list[str]:
    """Return all problems of a language's catalogues: missing, fuzzy, obsolete or incorrect translations."""
    base = catalogues.LANGUAGES / language / "terms.tsv"
    sources = catalogues.sources()
    found = [
        problem for name in sources for problem in _catalogue_problems(name, sources[name](), language, base)
    ]
    for path in sorted((catalogues.LANGUAGES / language).rglob("*.po")):
        name = path.relative_to(catalogues.LANGUAGES / language).as_posix().removesuffix(".po")
        if name not in sources:
            found.append(f"{name}: a catalogue of nothing; remove it")
    return found


def _catalogue_problems(name: str, texts: Iterable[catalogues.Text], language: str, base) -> Iterator[str]:
    """Yield the problems of one catalogue; ``base`` is the path of the language's terminology."""
    old = catalogues.load(catalogues.catalogue_path(name, language), language)
    have = {entry.id: entry for entry in old if entry.id}
    want = {entry.id: entry for entry in catalogues.untranslated_catalogue(texts, language) if entry.id}
    for key, entry in want.items():
        english = entry.id if isinstance(entry.id, str) else entry.id[-1]
        place = f"{name}, {entry.locations[0][0]}: {_brief(english)}"
        translated = have.pop(key, None)
        if translated is None:
            yield f"{place}: new or changed, and not in the catalogue"
        elif translated.fuzzy:
            yield f"{place}: changed; its translation is of the text before"
        else:
            yield from (
                f"{place}: {problem}"
                for other in (
                    [translated.string] if isinstance(translated.string, str) else translated.string
                )
                for problem in checks.problems(english, other, base)
            )
    for english in have:
        yield f"{name}: {_brief(str(english))}: no longer in the course"


def _brief(text: str) -> str:
    """Return a text on one line, shortened to 70 characters, in quotes."""
    text = " ".join(text.split())
    return repr(text if len(text) <= 70 else text[:67] + "…")
