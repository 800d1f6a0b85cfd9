"""Modified copies of a function: typical wrong answers, written as replacements in the reference's source."""

from __future__ import annotations

import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from course_language import _

_copy_number = itertools.count(1)


def edited(function: Callable[..., Any], edits: Mapping[str, str], **names: Any) -> Any:
    """Return a copy of ``function`` compiled from its source with some substrings replaced.

    Its attribute ``edits`` is ``(function, edits, names)``.

    Parameters
    ----------
    function
        A function whose source is in a file. It is not changed.
    edits
        Maps substrings of the source to replacements. Each must occur exactly once in the original source.
        Texts of several lines are written without the indentation of their first line. A line that an edit
        leaves empty is dropped.
    names
        Globals for the new lines that the function's module does not have.

    Raises
    ------
    ValueError
        If a substring does not occur exactly once, or two overlap.
    """
    source = textwrap.dedent(inspect.getsource(function))
    spans = sorted((*_find_once(source, old), new) for old, new in edits.items())
    if any(span[1] > following[0] for span, following in itertools.pairwise(spans)):
        raise ValueError(_("two edits overlap"))
    for start, stop, new in reversed(spans):
        line_start, margin = _line_start_and_indentation(source, start)
        new = textwrap.indent(new, margin)[len(margin) :]
        if not new and not source[line_start:start].strip() and source[stop] == "\n":
            start, stop = line_start, stop + 1
        source = source[:start] + new + source[stop:]
    file = f"<edited {function.__name__} {next(_copy_number)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {**function.__globals__, **names}
    exec(compile(source, file, "exec"), namespace)
    copy = namespace[function.__name__]
    copy.edits = function, dict(edits), names  # a tool makes an answer with the faults of two
    return copy


def variants(
    function: Callable[..., Any], old: str, new: str = "{}", **names: Any
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that makes copies of ``function``: one for each of its arguments, as a tuple.

    In each copy ``old`` is replaced by ``new``, in which ``{}`` stands for the argument, a string.
    """

    def make(*texts: str) -> tuple[Any, ...]:
        """Return a tuple with one edited copy for each text."""
        return tuple(edited(function, {old: new.replace("{}", text)}, **names) for text in texts)

    return make


def known_mistakes_of(
    function: Callable[..., Any], mistakes: Mapping[str, Any], **names: Any
) -> dict[str, Any]:
    """Return the wrong answers for each diagnosis id: a function or a tuple of functions.

    ``mistakes`` has for each id a function, which is kept, a mapping of edits of ``function`` (see `edited`),
    or a tuple of these. ``names`` are passed to `edited`.
    """

    def make(mistake: Any) -> Any:
        if isinstance(mistake, tuple):
            return tuple(map(make, mistake))
        return edited(function, mistake, **names) if isinstance(mistake, Mapping) else mistake

    return {name: make(mistake) for name, mistake in mistakes.items()}


def _line_start_and_indentation(source: str, position: int) -> tuple[int, str]:
    """Return the index at which the line that contains ``position`` starts, and its indentation."""
    start = source.rfind("\n", 0, position) + 1
    rest = source[start:]
    return start, " " * (len(rest) - len(rest.lstrip(" ")))


def _find_once(source: str, old: str) -> tuple[int, int]:
    """Return start and stop index of the only occurrence of ``old``, whose further lines may be indented.

    Raises
    ------
    ValueError
        If it does not occur exactly once.
    """
    first, *rest = old.split("\n")
    spans = []
    start = source.find(first)
    while start >= 0:
        __, margin = _line_start_and_indentation(source, start)
        text = "\n".join([first, *(margin + line for line in rest)])
        if source.startswith(text, start):
            spans.append((start, start + len(text)))
        start = source.find(first, start + 1)
    if len(spans) != 1:
        raise ValueError(
            _("{n_spans} times in the source, not once: {old!r}").format(n_spans=len(spans), old=old)
        )
    return spans[0]
