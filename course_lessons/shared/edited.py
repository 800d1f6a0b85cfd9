"""Copies of a function with a line or two changed: known mistakes, written as edits of the reference."""

from __future__ import annotations

import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from course_language import _

_number = itertools.count(1)


def edited(function: Callable[..., Any], edits: Mapping[str, str], **names: Any) -> Any:
    """Return a copy of ``function`` in which some texts are replaced.

    Parameters
    ----------
    function
        A function whose source is in a file. It is not changed.
    edits
        For each text its replacement. Each must occur in the source exactly once, before any edit.
        Texts of several lines are written without the indentation of their first line. A line that an edit
        leaves empty is dropped.
    names
        Globals for the new lines that the function's module does not have.

    Raises
    ------
    ValueError
        If a text is not in the source exactly once, or two overlap.
    """
    source = textwrap.dedent(inspect.getsource(function))
    spans = sorted((*_span(source, old), new) for old, new in edits.items())
    if any(one[1] > other[0] for one, other in itertools.pairwise(spans)):
        raise ValueError(_("two edits overlap"))
    for start, stop, new in reversed(spans):
        line_start, margin = _line(source, start)
        new = textwrap.indent(new, margin)[len(margin) :]
        if not new and not source[line_start:start].strip() and source[stop] == "\n":
            start, stop = line_start, stop + 1
        source = source[:start] + new + source[stop:]
    file = f"<edited {function.__name__} {next(_number)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace = {**function.__globals__, **names}
    exec(compile(source, file, "exec"), namespace)
    copy = namespace[function.__name__]
    copy.edits = function, dict(edits), names  # a tool makes an answer with the faults of two
    return copy


def variants(
    function: Callable[..., Any], old: str, new: str = "{}", **names: Any
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that takes texts and returns for each a copy of ``function`` with ``old`` replaced.

    The replacement is ``new`` with the text in the place of its braces.
    """

    def make(*texts: str) -> tuple[Any, ...]:
        return tuple(edited(function, {old: new.replace("{}", text)}, **names) for text in texts)

    return make


def known_mistakes_of(
    function: Callable[..., Any], mistakes: Mapping[str, Any], **names: Any
) -> dict[str, Any]:
    """Return for each diagnosis a wrong function, or a tuple of them.

    Edits among ``mistakes`` become copies of ``function`` (``edited``); functions stay as they are.
    """

    def make(mistake: Any) -> Any:
        if isinstance(mistake, tuple):
            return tuple(map(make, mistake))
        return edited(function, mistake, **names) if isinstance(mistake, Mapping) else mistake

    return {name: make(mistake) for name, mistake in mistakes.items()}


def _line(source: str, position: int) -> tuple[int, str]:
    """Return where the line of a position starts, and its indentation."""
    start = source.rfind("\n", 0, position) + 1
    rest = source[start:]
    return start, " " * (len(rest) - len(rest.lstrip(" ")))


def _span(source: str, old: str) -> tuple[int, int]:
    """Return start and stop of a text in a source, whatever its indentation there."""
    first, *rest = old.split("\n")
    spans = []
    start = source.find(first)
    while start >= 0:
        __, margin = _line(source, start)
        text = "\n".join([first, *(margin + line for line in rest)])
        if source.startswith(text, start):
            spans.append((start, start + len(text)))
        start = source.find(first, start + 1)
    if len(spans) != 1:
        raise ValueError(
            _("{n_spans} times in the source, not once: {old!r}").format(n_spans=len(spans), old=old)
        )
    return spans[0]
