"""A function with a line or two changed: a known mistake, written as what it changes."""

from __future__ import annotations

import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

_number = itertools.count(1)


def edited(function: Callable[..., Any], edits: Mapping[str, str], **names: Any) -> Any:
    """Return a copy of ``function`` in which some texts are replaced.

    Parameters
    ----------
    function
        A function whose source is in a file. It stays as it is.
    edits
        For each text, the text in its place. Each must stand in the source exactly once, before any edit.
        A text of several lines stands as in a function of its own, its first line at the margin; so does
        what takes its place. A line of which nothing is left goes.
    names
        What the new lines name and the function's module does not have.

    Raises
    ------
    ValueError
        If a text is not in the source exactly once, or two overlap.
    """
    source = textwrap.dedent(inspect.getsource(function))
    spans = sorted((*_span(source, old), new) for old, new in edits.items())
    if any(one[1] > other[0] for one, other in itertools.pairwise(spans)):
        raise ValueError("two edits overlap")
    for start, stop, new in reversed(spans):
        line_start, margin = _line(source, start)
        new = textwrap.indent(new, margin)[len(margin) :]
        if not new and not source[line_start:start].strip() and source[stop] == "\n":
            start, stop = line_start, stop + 1
        source = source[:start] + new + source[stop:]
    file = f"<edited {function.__name__} {next(_number)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = {**function.__globals__, **names}
    exec(compile(source, file, "exec"), space)
    made = space[function.__name__]
    made.edits = function, dict(edits), names  # tests make an answer with the faults of two
    return made


def variants(
    function: Callable[..., Any], old: str, new: str = "{}", **names: Any
) -> Callable[..., tuple[Any, ...]]:
    """Return what makes known mistakes of ``function``, each written as what stands in the place of ``old``.

    Where ``new`` is given, what is written stands in the place of the braces in it.
    """

    def made(*texts: str) -> tuple[Any, ...]:
        return tuple(edited(function, {old: new.replace("{}", text)}, **names) for text in texts)

    return made


def known_mistakes_of(
    function: Callable[..., Any], mistakes: Mapping[str, Any], **names: Any
) -> dict[str, Any]:
    """Return the known mistakes of ``function``: for each diagnosis one, or a tuple of several.

    Of ``mistakes`` those that are edits become copies with these edits (``edited``); functions stay as they are.
    """

    def made(mistake: Any) -> Any:
        if isinstance(mistake, tuple):
            return tuple(map(made, mistake))
        return edited(function, mistake, **names) if isinstance(mistake, Mapping) else mistake

    return {name: made(mistake) for name, mistake in mistakes.items()}


def _line(source: str, at: int) -> tuple[int, str]:
    """Return where the line begins in which a place is, and the line's indentation."""
    start = source.rfind("\n", 0, at) + 1
    rest = source[start:]
    return start, " " * (len(rest) - len(rest.lstrip(" ")))


def _span(source: str, old: str) -> tuple[int, int]:
    """Return where a text stands in a source, whatever its indentation there."""
    first, *rest = old.split("\n")
    found = []
    at = source.find(first)
    while at >= 0:
        _, margin = _line(source, at)
        text = "\n".join([first, *(margin + more for more in rest)])
        if source.startswith(text, at):
            found.append((at, at + len(text)))
        at = source.find(first, at + 1)
    if len(found) != 1:
        raise ValueError(f"{len(found)} times in the source, not once: {old!r}")
    return found[0]
