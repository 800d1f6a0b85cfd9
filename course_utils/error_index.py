"""Search the handbook's index of errors for the entries that explain an error message, or some words.

Three searches, the most reliable first: by templates of the messages (`…` stands for what varies), then by
what learners call the problem (aliases, a title, the beginning of a message), then by BM25 over the words of
each entry. Chinese has no spaces, so character bigrams serve as its words. No result is better than a wrong
one: a search that does not explain enough of the question returns nothing.
"""

from __future__ import annotations

import difflib
import math
import posixpath
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from course_language import N_, _, chosen, languages, translation

from .content import handbook
from .error_words import (
    BOILERPLATE,
    FUNCTION_WORDS,
    STOP_WORDS,
    bigrams,
    compact,
    normalize,
    plain_words,
    tokens,
)

_ENTRY = (
    r"(?P<title>[^\n]+)\n\n```text\n(?P<forms>.+?)\n```\n\n(?P<meaning>.+?)\n\n"
    r"(?:```python (?P<where>[^\n]+)\n(?P<program>.+?)\n```\n\n)?"
    r"(?:(?P<source>{}[^\n]+)\n\n)?{}(?P<fix>.+)\n\n(?P<lesson>[^\n]+)\n*"
)
_HEADS = (N_("Seen in: "), N_("**Fix.** "))
_ALIASES = N_("Also asked as: ")
NOTHING = _(
    "The handbook has no error like this. Try other words of the message, the rarer the better; "
    "handbook/errors.md lists all that it has."
)

WRAPPERS = frozenset(
    {
        "childfailederror-where-the-true-error-stands",
        "an-error-inside-a-worker",
        "out-of-memory-in-the-pin-memory-thread",
        "nccl-to-avoid-data-inconsistency-the-process-is-taken-down",
    }
)
"""Anchors of entries whose message wraps that of the cause: they rank below it and are shown beside it."""
GENERAL = frozenset(
    {
        "a-cuda-error",
        "the-backend-failed",
        "rocm-hip-error-and-the-override-of-the-cards-name",
        "a-name-is-not-defined",
        "a-module-is-not-installed",
    }
)
"""Anchors of entries whose message is a general form of others: they rank below a more specific entry."""

_EXCEPTION = r"(?:\w+\.)*\w*(?:Error|Exception|Warning|Unsupported|HardFailure|HitLimit)"
_LAST_LINES = re.compile(rf"(?m)^(?:\[rank\d+\]: ?)?{_EXCEPTION}\b(?! raised)")
_PREFIX_WORDS = 4  # the least number of words in which a message's beginning must match
_LEAST_ALIAS_SHARE = 0.33  # the least share of a question's information that a matching alias has
_LONG_PREFIX_WORDS = 6  # a matching beginning of this many words counts as a match of the whole template
_LEAST_PREFIX_NATS = 10.0  # the least information of a matching beginning
_MOST_CHARACTERS = 20_000  # of a question, counted from its last error, that are searched for
_QUESTION_WORDS = 40  # a longer text is a log or a traceback, not a learner's words
_BM25_THRESHOLDS = {False: (0.6, 5.5), True: (0.75, 10.0)}
"""Whether the question is an error message, to the thresholds of a BM25 result: the least share of the
question's information that its names explain, and the least information in nats. They are higher for an error
message, which a template would have matched if the handbook had it."""


@dataclass(frozen=True)
class Entry:
    """One entry of a page in ``handbook/errors/``.

    ``forms`` are the message's templates; ``program`` is code that raises the error, and ``where`` what it
    needs to run.
    """

    page: str
    title: str
    anchor: str
    forms: tuple[str, ...]
    meaning: str
    where: str
    program: str
    source: str
    fix: str
    lesson: str
    aliases: tuple[str, ...]


@cache
def entries(language: str = "en") -> tuple[Entry, ...]:
    """Return the entries of all pages in a language, by the pages' file names, then as they stand on a page.

    The order is the same in each language, so entries can be paired. ``language`` is a code, such as
    ``"zh"``; one without pages has no entries. The result is cached. ValueError, with the title, for an entry
    that does not have the form of the regular expression `_ENTRY`.
    """
    result, heads = [], (re.escape(translation(language).gettext(head)) for head in _HEADS)
    form = re.compile(_ENTRY.format(*heads), re.DOTALL)
    home = handbook() / ("" if language == "en" else language) / "errors"
    for path in sorted(home.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        for anchor, text in re.findall(
            r'(?ms)^(?:<a id="([\w-]+)"></a>\n\n)?## (.+?)(?=^<a id=|^## |\Z)', page
        ):
            text, __, aliases = text.strip().partition(f"\n\n{translation(language).gettext(_ALIASES)}")
            match = form.fullmatch(text)
            if match is None:
                raise ValueError(
                    _("{path}: not an entry's form: {first_text}").format(
                        path=path.name, first_text=text.splitlines()[0]
                    )
                )
            fields = {name: value or "" for name, value in match.groupdict().items()}
            anchor = anchor or _slug(fields["title"])
            forms = tuple(fields.pop("forms").splitlines())
            words = tuple(filter(None, (word.strip(" .。\n") for word in re.split("[;；]", aliases))))
            result.append(Entry(path.stem, anchor=anchor, forms=forms, aliases=words, **fields))
    return tuple(result)


def _slug(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _in_chosen_language(entry: Entry) -> Entry:
    """Return an English entry's translation in the chosen language; the entry itself if there is none."""
    return dict(zip(entries(), entries(chosen()), strict=False)).get(entry, entry)


def link(entry: Entry) -> str:
    """Return a Markdown link to an entry with its title, relative to the pages' folder."""
    return f"[{entry.title}]({entry.page}.md#{entry.anchor})"


@cache
def _templates(form: str) -> tuple[tuple[str, ...], ...]:
    """Return the variants of a message's template, each as its normalized constant parts in order.

    They are the whole, without the exception's name, and without "CUDA error"; the shortened ones only if
    enough words remain (3 or 4), or they would match anything.
    """
    bare = re.sub(rf"^{_EXCEPTION}:\s*", "", form)
    variants = []
    for text, least in ((form, 1), (bare, 3), (re.sub(r"^CUDA error:\s*", "", bare), 4)):
        parts = tuple(filter(None, map(normalize, text.split("…"))))
        if parts and len(" ".join(parts).split()) >= least and parts not in variants:
            variants.append(parts)
    return tuple(variants)


def matches_template(form: str, message: str) -> bool:
    """Return whether a normalized message has all constant parts of a form (those between `…`), in order."""
    return any(_has_in_order(parts, f" {message} ") for parts in _templates(form)[:2])


def _has_in_order(parts: tuple[str, ...], message: str) -> bool:
    """Return whether a message, with a space at both ends, contains the parts in order, at whole words."""
    position = 0
    for part in parts:
        position = message.find(f" {part} ", position)
        if position < 0:
            return False
        position += len(part) + 1
    return True


@dataclass(frozen=True)
class _Index:
    """The search index: for each entry, by its number, its words and aliases.

    ``counts`` has the words' frequencies, names twice; ``aliases`` and ``chinese`` what learners call the
    error. ``information`` maps a word to its inverse document frequency in nats; ``average`` is the mean
    number of words in an entry.
    """

    counts: tuple[Counter[str], ...]
    names: tuple[frozenset[str], ...]
    """Each entry's words in its title, messages and aliases, without those of its explanation."""
    aliases: tuple[tuple[frozenset[str], ...], ...]
    chinese: tuple[tuple[str, ...], ...]
    information: dict[str, float]
    average: float

    def information_of(self, word: str) -> float:
        """Return a word's inverse document frequency in nats; 0.5 for a stop word, the largest if unknown."""
        if word in STOP_WORDS or word in FUNCTION_WORDS:
            return 0.5
        return self.information.get(word, math.log(1 + 2 * len(self.counts)))

    def score(self, entry: int, words: set[str]) -> float:
        """Return the BM25 score of an entry, by number, for a set of words, with k = 1.2 and b = 0.75."""
        count, k, b = self.counts[entry], 1.2, 0.75
        length = k * (1 - b + b * count.total() / self.average)
        return sum(
            self.information_of(word) * count[word] * (k + 1) / (count[word] + length) for word in words
        )


@cache
def _index() -> _Index:
    """Return the search index of all entries, in all languages; cached.

    ValueError if a language has more or fewer entries than English.
    """
    counts, names, aliases, chinese = [], [], [], []
    translations = [entries(language) for language in languages()[1:]]
    for entry, *translated in zip(entries(), *translations, strict=True):
        named = [entry.title, *entry.forms, *entry.aliases]
        named += [text for other in translated for text in (other.title, *other.aliases)]
        explained = [text for each in (entry, *translated) for text in (each.meaning, each.fix)]
        name = [token for text in named for token in tokens(text)]
        counts.append(Counter(name * 2 + [token for text in explained for token in tokens(text)]))
        names.append(frozenset(name))
        aliases.append(tuple(frozenset(plain_words(alias)) for alias in (*entry.aliases, entry.title)))
        chinese.append(
            tuple(
                compact(text)
                for each in translated
                for text in (*each.aliases, each.title)
                if bigrams(compact(text))
            )
        )
    appears = Counter(token for count in counts for token in count)
    information = {t: math.log(1 + (len(counts) - n + 0.5) / (n + 0.5)) for t, n in appears.items()}
    average = sum(count.total() for count in counts) / len(counts)
    return _Index(tuple(counts), tuple(names), tuple(aliases), tuple(chinese), information, average)


@cache
def _words_by_initial() -> dict[str, list[str]]:
    """Return the words of the index by their first letter; cached, so don't modify it."""
    known: dict[str, list[str]] = {}
    for word in _index().information:
        known.setdefault(word[0], []).append(word)
    return known


@lru_cache(4096)
def _spell_corrected(word: str) -> str:
    """Return the most frequent similar word of the index for a misspelt word; else the word itself."""
    known = _index().information
    if word in known or word in STOP_WORDS or len(word) < 4 or not word.isalpha():
        return word
    alike = [other for other in _words_by_initial().get(word[0], ()) if abs(len(other) - len(word)) <= 2]
    near = difflib.get_close_matches(word, alike, 3, 0.82)
    return min(near, key=lambda other: known[other], default=word)


def _matched_prefix_words(parts: tuple[str, ...], message: str) -> int:
    """Return how many words of a template, from its beginning, a message contains in order.

    ``message`` has a space at both ends.
    """
    position = words = 0
    for part in parts:
        index = message.find(f" {part} ", position)
        if index < 0:
            part_words = part.split()
            size = 0
            while size < len(part_words) and f" {' '.join(part_words[: size + 1])} " in message[position:]:
                size += 1
            return words + size
        position = index + len(part) + 1
        words += len(part.split())
    return words


def _template_match(entry: Entry, message: str, lines: Container[str]) -> tuple[bool, int]:
    """Return ``(is_error, length)`` of the entry's best template that matches a message; (False, 0) if none.

    ``is_error`` is whether it is an error's, not a warning's; ``length`` is in characters. A template matches
    if the message has all of it, or a long beginning; one of a single word only as a whole line.
    """
    best = (False, 0)
    for form in entry.forms:
        is_error = not re.match(r"\w*Warning:", form)
        for parts in _templates(form):
            whole = " ".join(parts)
            if _has_in_order(parts, message):
                if " " in whole or whole in lines:
                    best = max(best, (is_error, len(whole)))
            elif f" {' '.join(parts[0].split()[:2])} " in message:
                words = whole.split()[: _matched_prefix_words(parts, message)]
                if len(words) >= _LONG_PREFIX_WORDS and _total_information(words) > _LEAST_PREFIX_NATS:
                    best = max(best, (is_error, len(" ".join(words))))
    return best


def _total_information(words: Iterable[str]) -> float:
    """Return the information of a set of words, in nats: the sum of their inverse document frequencies."""
    return sum(map(_index().information_of, set(words)))


def _prefix_information(entry: Entry, question: str, total: float) -> float:
    """Return the information, in nats, of the best beginning of the entry's messages in a question, or 0.

    A beginning counts if its information is large, or is most of the question's, ``total``.
    """
    best = 0.0
    for form in entry.forms:
        for parts in _templates(form)[1:2] or _templates(form):
            words = parts[0].split()
            if f" {' '.join(words[:_PREFIX_WORDS])} " in question and len(words) >= _PREFIX_WORDS:
                begun = words[: _matched_prefix_words(parts[:1], question)]
                information = _total_information(begun)
                most = len(begun) > _PREFIX_WORDS and information >= 0.6 * total
                best = max(best, information if most or information > _LEAST_PREFIX_NATS else 0)
    return best


def _alias_information(entry: int, words: set[str], compacted: str, total: float) -> float:
    """Return the information, in nats, of the entry's best alias that is in a question, or 0.

    ``words`` are the question's, ``compacted`` its text as `compact` returns it, ``total`` its information.
    """
    index, best = _index(), 0.0
    for alias in index.aliases[entry]:
        if alias and alias <= words and (len(alias) > 1 or alias == words):
            information = sum(map(index.information_of, alias))
            best = max(best, information if information >= _LEAST_ALIAS_SHARE * total else 0)
    for alias in index.chinese[entry]:
        if (span := _alias_span(alias, compacted)) and (len(alias) > 2 or 2 * len(alias) >= len(compacted)):
            best = max(best, 2.5 * len(alias) - 0.5 * (span - len(alias)))
    return best


def _alias_span(alias: str, text: str) -> int:
    """Return the length of the shortest part of a text that has an alias's characters in order, or 0 if none.

    Other characters may stand between them in an alias of 4 characters or more.
    """
    if alias in text:
        return len(alias)
    max_span = 2 * len(alias) if len(alias) >= 6 else len(alias) + 2 if len(alias) >= 4 else 0
    spans = []
    for start in (i for i, letter in enumerate(text) if max_span and letter == alias[0]):
        position = start
        for letter in alias[1:]:
            position = text.find(letter, position + 1, start + max_span)
            if position < 0:
                break
        else:
            spans.append(position - start + 1)
    return min(spans, default=0)


def _bm25_scores(words: set[str], is_message: bool) -> dict[int, float]:
    """Return the BM25 scores, by entry number, of the entries above `_BM25_THRESHOLDS` for a question."""
    index = _index()
    share, least = _BM25_THRESHOLDS[is_message]
    total = sum(map(index.information_of, words))
    scores = {}
    for entry, names in enumerate(index.names):
        shared = sum(index.information_of(word) for word in words & names)
        if shared >= max(least, share * total):
            scores[entry] = index.score(entry, words)
    return scores


def find(text: str, most: int = 3) -> list[Entry]:
    """Return the entries that explain an error message, a traceback, a log or some words, best first.

    They are the English ones, whatever the language of the text; `render` translates them. There are
    ``most`` at most, and none if no entry explains enough of the text. An entry in `WRAPPERS` that matches
    too takes the last place, if it would be left out.
    """
    lines = dict.fromkeys(map(normalize, text.splitlines()))  # without duplicates: a log repeats lines
    message = " ".join(filter(None, lines))
    last = [match.start() for match in _LAST_LINES.finditer(text)][-1:]
    last_message = BOILERPLATE.sub(" ", text[last[0] if last else 0 :][:_MOST_CHARACTERS])
    question, compacted = f" {normalize(last_message)} ", compact(last_message)
    words = {_spell_corrected(word) for word in plain_words(last_message)[:_QUESTION_WORDS]}
    total = _total_information(words)
    search_words = {_spell_corrected(word) for word in tokens(last_message)[:_QUESTION_WORDS]}
    # a number that is not in the handbook is specific to this case
    search_words = {word for word in search_words if not word.isdigit() or word in _index().information}
    matched = [_template_match(entry, f" {message} ", lines) for entry in entries()]
    near = {} if any(length for _, length in matched) else _bm25_scores(search_words, bool(last))
    ranked = []
    for number, (entry, (is_error, length)) in enumerate(zip(entries(), matched, strict=True)):
        name_information = 0.0
        if not length:
            name_information = _prefix_information(entry, question, total)
            name_information = max(name_information, _alias_information(number, words, compacted, total))
        if length or name_information or number in near:
            if entry.anchor in WRAPPERS:
                level = 1
            elif entry.anchor in GENERAL and length:
                level = 3
            else:
                level = 5 if length and is_error else 4 if length else 2 if name_information else 0
            shortest = -min(map(len, entry.forms))
            score = near.get(number, 0.0)
            ranked.append(((level, length, name_information, score, shortest), -number, entry))
    ranked.sort(reverse=True)
    found = [entry for *_, entry in ranked]
    wrappers = [entry for entry in found[most:] if entry.anchor in WRAPPERS][:1]
    return found[: most - len(wrappers)] + wrappers  # the wrapping error is shown beside its cause


def render(found: list[Entry], make_link: Callable[[str, str], str]) -> str:
    """Return the Markdown text of the first entry, followed by links to the others; there must be one.

    ``make_link(text, path)`` returns the text of a link; ``path`` is relative to the repository's root, or a
    URL. Entries are translated into the chosen language.
    """
    first, *others = map(_in_chosen_language, found)
    text = f"{link(first)}\n\n    {first.forms[0]}\n\n{first.meaning}\n\n"
    text += _("**Fix.** {fix}\n\n{lesson}").format(fix=first.fix, lesson=first.lesson)
    text += _("\n\nNear it, too: {link}").format(link=", ".join(map(link, others))) if others else ""
    pages = "handbook/errors" if chosen() == "en" else f"handbook/{chosen()}/errors"

    def linked(match: re.Match[str]) -> str:
        here = posixpath.normpath(f"{pages}/{match[2]}")
        return make_link(match[1], match[2] if "://" in match[2] else here)

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", linked, text)


def _markdown_link(text: str, path: str) -> str:
    """Return a Markdown link.

    ``path`` is relative to the repository's root: if the working directory has a file of the same base name,
    link to that, else to `Course.page`. A URL is used as it is.
    """
    from .course import load_course

    beside = posixpath.basename(path)
    if "://" not in path:
        path = beside if Path(beside).is_file() else load_course().page(path)
    return f"[{text}]({path})"


def plain_text_link(text: str, path: str) -> str:
    """Return a link for a terminal: the text, and the path in parentheses."""
    return f"{text} ({path})"


def explain(error: BaseException | str | None = None) -> None:
    """Print what an error means, how to fix it, and which lesson is about it; in a notebook, display it.

    That is the text of the entry that fits best, in the chosen language, with links to others; or that there
    is none. ``error`` is an exception, its message, or some words of that. By default it is the session's
    last error (``sys.last_value``), also one that a cell expected, or that an answer raised in a check.
    """
    from IPython.display import Markdown, display

    from .this_machine import in_notebook

    error = getattr(sys, "last_value", None) if error is None else error
    text = _("Nothing has failed in this session yet. After an error, `explain()` says what it means.")
    if error is not None:
        error_text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
        found = find(error_text)
        text = render(found, _markdown_link if in_notebook() else plain_text_link) if found else NOTHING
    display(Markdown(text)) if in_notebook() else print(text)
