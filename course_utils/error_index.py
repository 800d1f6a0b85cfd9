"""The handbook's index of errors, searched: from a message, or from some words, to what it means.

Three looks, the surest first: the templates of the messages themselves (`…` stands for what varies), then
what learners call the trouble (aliases, a title, the beginning of a message), then BM25 over the words of
each entry. Chinese has no spaces, so its words are pairs of characters. Nothing is better than a wrong
entry: a look that does not explain enough of the question finds nothing.
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
"""Entries, by anchor, whose message stands around the cause's: they rank below it, and stand beside it."""
GENERAL = frozenset(
    {
        "a-cuda-error",
        "the-backend-failed",
        "rocm-hip-error-and-the-override-of-the-cards-name",
        "a-name-is-not-defined",
        "a-module-is-not-installed",
    }
)
"""Entries whose message is a general form of others: they rank below a more special one."""

_EXCEPTION = r"(?:\w+\.)*\w*(?:Error|Exception|Warning|Unsupported|HardFailure|HitLimit)"
_LAST_LINES = re.compile(rf"(?m)^(?:\[rank\d+\]: ?)?{_EXCEPTION}\b(?! raised)")
_PREFIX_WORDS = 4  # so many words of a message's beginning name it
_ALIAS_SHARE = 0.33  # the share of a question that an alias says, at least
_STRONG_PREFIX = 6  # and so many are as good as the whole
_BEGINNING_INFORMATION = 10.0  # what a beginning must tell, in nats
_MOST_READ = 20_000  # characters of a question, from its last error
_QUESTION_WORDS = 40  # a longer text is a log or a traceback, not a learner's words
_NEAR = {False: (0.6, 5.5), True: (0.75, 10.0)}
"""The least share of a question's information that a near entry explains, and how much in nats: of words
that somebody typed, and of an error's message, which would be known if it were here."""


@dataclass(frozen=True)
class Entry:
    """One error, as a page in ``handbook/errors/`` tells it; ``where`` is what its program needs."""

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
    """Read all pages, in the same order in each language; ValueError, with the title, for another form."""
    found, heads = [], (re.escape(translation(language).gettext(head)) for head in _HEADS)
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
            found.append(Entry(path.stem, anchor=anchor, forms=forms, aliases=words, **fields))
    return tuple(found)


def _slug(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _in_chosen_language(entry: Entry) -> Entry:
    """Return an entry in the chosen language, or as it is where that has none."""
    return dict(zip(entries(), entries(chosen()), strict=False)).get(entry, entry)


def link(entry: Entry) -> str:
    """Return the entry's title, linked as from a page beside its own."""
    return f"[{entry.title}]({entry.page}.md#{entry.anchor})"


@cache
def _templates(form: str) -> tuple[tuple[str, ...], ...]:
    """Return a message's constant parts, in order: whole, without its exception's name, without "CUDA error".

    Without these some words must be left, or anything would match.
    """
    bare = re.sub(rf"^{_EXCEPTION}:\s*", "", form)
    found = []
    for text, least in ((form, 1), (bare, 3), (re.sub(r"^CUDA error:\s*", "", bare), 4)):
        parts = tuple(filter(None, map(normalize, text.split("…"))))
        if parts and len(" ".join(parts).split()) >= least and parts not in found:
            found.append(parts)
    return tuple(found)


def matches_template(form: str, message: str) -> bool:
    """Whether a normalized message has the parts of a form, those between its dots, in their order."""
    return any(_has_in_order(parts, f" {message} ") for parts in _templates(form)[:2])


def _has_in_order(parts: tuple[str, ...], message: str) -> bool:
    at = 0
    for part in parts:
        at = message.find(f" {part} ", at)
        if at < 0:
            return False
        at += len(part) + 1
    return True


@dataclass(frozen=True)
class _Index:
    """The words of all entries, counted once, for BM25."""

    counts: tuple[Counter[str], ...]
    names: tuple[frozenset[str], ...]
    """Each entry's words in its title, messages and aliases: what a question names, not what explains it."""
    aliases: tuple[tuple[frozenset[str], ...], ...]
    chinese: tuple[tuple[str, ...], ...]
    information: dict[str, float]
    average: float

    def information_of(self, word: str) -> float:
        """Return a word's inverse document frequency; an unknown word's is the largest."""
        if word in STOP_WORDS or word in FUNCTION_WORDS:
            return 0.5
        return self.information.get(word, math.log(1 + 2 * len(self.counts)))

    def score(self, entry: int, words: set[str]) -> float:
        """Return the entry's BM25 score, with the usual constants."""
        count, k, b = self.counts[entry], 1.2, 0.75
        length = k * (1 - b + b * count.total() / self.average)
        return sum(
            self.information_of(word) * count[word] * (k + 1) / (count[word] + length) for word in words
        )


@cache
def _index() -> _Index:
    counts, names, aliases, chinese = [], [], [], []
    others = [entries(language) for language in languages()[1:]]
    for entry, *translated in zip(entries(), *others, strict=True):
        named = [entry.title, *entry.forms, *entry.aliases]
        named += [text for other in translated for text in (other.title, *other.aliases)]
        explained = [text for one in (entry, *translated) for text in (one.meaning, one.fix)]
        name = [token for text in named for token in tokens(text)]
        counts.append(Counter(name * 2 + [token for text in explained for token in tokens(text)]))
        names.append(frozenset(name))
        aliases.append(tuple(frozenset(plain_words(alias)) for alias in (*entry.aliases, entry.title)))
        chinese.append(
            tuple(
                compact(text)
                for one in translated
                for text in (*one.aliases, one.title)
                if bigrams(compact(text))
            )
        )
    appears = Counter(token for count in counts for token in count)
    information = {t: math.log(1 + (len(counts) - n + 0.5) / (n + 0.5)) for t, n in appears.items()}
    average = sum(count.total() for count in counts) / len(counts)
    return _Index(tuple(counts), tuple(names), tuple(aliases), tuple(chinese), information, average)


@cache
def _known_words() -> dict[str, list[str]]:
    """Return the handbook's words, by their first letter."""
    known: dict[str, list[str]] = {}
    for word in _index().information:
        known.setdefault(word[0], []).append(word)
    return known


@lru_cache(4096)
def _correct(word: str) -> str:
    """Return the commonest near word of the handbook where a word is only mistyped; else the word."""
    known = _index().information
    if word in known or word in STOP_WORDS or len(word) < 4 or not word.isalpha():
        return word
    alike = [other for other in _known_words().get(word[0], ()) if abs(len(other) - len(word)) <= 2]
    near = difflib.get_close_matches(word, alike, 3, 0.82)
    return min(near, key=lambda other: known[other], default=word)


def _progress(parts: tuple[str, ...], message: str) -> int:
    """Return how many words of a template's beginning a message has, in their order."""
    at = words = 0
    for part in parts:
        found = message.find(f" {part} ", at)
        if found < 0:
            own = part.split()
            size = 0
            while size < len(own) and f" {' '.join(own[: size + 1])} " in message[at:]:
                size += 1
            return words + size
        at = found + len(part) + 1
        words += len(part.split())
    return words


def _matched(entry: Entry, message: str, lines: Container[str]) -> tuple[bool, int]:
    """Return whether the entry's best template in the message is an error's, no warning's, and its length.

    A template counts where all of it is there, or a long beginning.
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
                words = whole.split()[: _progress(parts, message)]
                if len(words) >= _STRONG_PREFIX and _total_information(words) > _BEGINNING_INFORMATION:
                    best = max(best, (is_error, len(" ".join(words))))
    return best


def _total_information(words: Iterable[str]) -> float:
    """Return how much some words tell, in nats."""
    return sum(map(_index().information_of, set(words)))


def _beginning(entry: Entry, question: str, total: float) -> float:
    """Return how much a short beginning of one of the entry's messages tells that is in the question, or 0.

    It is enough where it tells much, or most of what the whole question tells.
    """
    best = 0.0
    for form in entry.forms:
        for parts in _templates(form)[1:2] or _templates(form):
            words = parts[0].split()
            if f" {' '.join(words[:_PREFIX_WORDS])} " in question and len(words) >= _PREFIX_WORDS:
                begun = words[: _progress(parts[:1], question)]
                information = _total_information(begun)
                most = len(begun) > _PREFIX_WORDS and information >= 0.6 * total
                best = max(best, information if most or information > _BEGINNING_INFORMATION else 0)
    return best


def _alias(entry: int, words: set[str], compacted: str, total: float) -> float:
    """Return how much of a question the entry's best alias says, or 0."""
    index, best = _index(), 0.0
    for alias in index.aliases[entry]:
        if alias and alias <= words and (len(alias) > 1 or alias == words):
            information = sum(map(index.information_of, alias))
            best = max(best, information if information >= _ALIAS_SHARE * total else 0)
    for alias in index.chinese[entry]:
        if (span := _span(alias, compacted)) and (len(alias) > 2 or 2 * len(alias) >= len(compacted)):
            best = max(best, 2.5 * len(alias) - 0.5 * (span - len(alias)))
    return best


def _span(alias: str, text: str) -> int:
    """Return how many characters of a text hold an alias's in order, or 0; a short one in one piece only."""
    if alias in text:
        return len(alias)
    most = 2 * len(alias) if len(alias) >= 6 else len(alias) + 2 if len(alias) >= 4 else 0
    spans = []
    for start in (at for at, letter in enumerate(text) if most and letter == alias[0]):
        at = start
        for letter in alias[1:]:
            at = text.find(letter, at + 1, start + most)
            if at < 0:
                break
        else:
            spans.append(at - start + 1)
    return min(spans, default=0)


def _near(words: set[str], is_message: bool) -> dict[int, float]:
    """Return the BM25 scores of the entries that name enough of a question's information."""
    index = _index()
    share, least = _NEAR[is_message]
    total = sum(map(index.information_of, words))
    found = {}
    for entry, names in enumerate(index.names):
        shared = sum(index.information_of(word) for word in words & names)
        if shared >= max(least, share * total):
            found[entry] = index.score(entry, words)
    return found


def find(text: str, most: int = 3) -> list[Entry]:
    """Return the entries that answer a message, a traceback, a log or some words, best first, or none."""
    lines = dict.fromkeys(map(normalize, text.splitlines()))  # a log says the same a thousand times
    message = " ".join(filter(None, lines))
    last = [match.start() for match in _LAST_LINES.finditer(text)][-1:]
    own = BOILERPLATE.sub(" ", text[last[0] if last else 0 :][:_MOST_READ])
    question, compacted = f" {normalize(own)} ", compact(own)
    words = {_correct(word) for word in plain_words(own)[:_QUESTION_WORDS]}
    total = _total_information(words)
    asked = {_correct(word) for word in tokens(own)[:_QUESTION_WORDS]}
    # a number that the handbook does not know is only this time's
    asked = {word for word in asked if not word.isdigit() or word in _index().information}
    matched = [_matched(entry, f" {message} ", lines) for entry in entries()]
    near = {} if any(length for _, length in matched) else _near(asked, bool(last))
    ranked = []
    for number, (entry, (is_error, length)) in enumerate(zip(entries(), matched, strict=True)):
        named = 0.0
        if not length:
            named = _beginning(entry, question, total)
            named = max(named, _alias(number, words, compacted, total))
        if length or named or number in near:
            if entry.anchor in WRAPPERS:
                level = 1
            elif entry.anchor in GENERAL and length:
                level = 3
            else:
                level = 5 if length and is_error else 4 if length else 2 if named else 0
            shortest = -min(map(len, entry.forms))
            score = near.get(number, 0.0)
            ranked.append(((level, length, named, score, shortest), -number, entry))
    ranked.sort(reverse=True)
    found = [entry for *_, entry in ranked]
    around = [entry for entry in found[most:] if entry.anchor in WRAPPERS][:1]
    return found[: most - len(around)] + around  # what stands around the cause is named beside it


def render(found: list[Entry], make_link: Callable[[str, str], str]) -> str:
    """Return the first entry and the others' names; ``make_link`` takes a name and a path."""
    first, *others = map(_in_chosen_language, found)
    text = f"{link(first)}\n\n    {first.forms[0]}\n\n{first.meaning}\n\n"
    text += _("**Fix.** {fix}\n\n{lesson}").format(fix=first.fix, lesson=first.lesson)
    text += _("\n\nNear it, too: {link}").format(link=", ".join(map(link, others))) if others else ""
    pages = "handbook/errors" if chosen() == "en" else f"handbook/{chosen()}/errors"

    def linked(match: re.Match[str]) -> str:
        here = posixpath.normpath(f"{pages}/{match[2]}")
        return make_link(match[1], match[2] if "://" in match[2] else here)

    return re.sub(r"\[([^\]]+)\]\(([^)\s]+)\)", linked, text)


def _in_notebook(name: str, path: str) -> str:
    """A link to the lesson beside this notebook, else into the course's repository."""
    from .course import load_course

    beside = posixpath.basename(path)
    if "://" not in path:
        path = beside if Path(beside).is_file() else load_course().page(path)
    return f"[{name}]({path})"


def in_terminal(name: str, path: str) -> str:
    """A link that can be read."""
    return f"{name} ({path})"


def explain(error: BaseException | str | None = None) -> None:
    """Say what an error means, what to do, and which lesson builds it.

    Give an error, its message or some words of that; without it this takes the session's last error,
    also one that was raised on purpose, or by your answer in a check.
    """
    from IPython.display import Markdown, display

    from .this_machine import in_notebook

    error = getattr(sys, "last_value", None) if error is None else error
    text = "Nothing has failed in this session yet. After an error, explain() says what it means."
    if error is not None:
        said = error if isinstance(error, str) else "".join(traceback.format_exception(error))
        found = find(said)
        text = render(found, _in_notebook if in_notebook() else in_terminal) if found else NOTHING
    display(Markdown(text)) if in_notebook() else print(text)
