"""Deliberate errors in a lesson: catch, check and show them, so that the notebook continues."""

from __future__ import annotations

import html
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from course_language import _


@dataclass
class Caught:
    """The exception that an `expect_error` block raised; ``error`` is None until then."""

    error: BaseException | None = None

    @property
    def message(self) -> str:
        """The error's message, ``str(error)``."""
        return str(self.error)


@contextmanager
def expect_error(
    kind: type[BaseException] | tuple[type[BaseException], ...], match: str = ""
) -> Iterator[Caught]:
    """Run a block that must raise an exception; catch and show it. It is also the error that explain() takes.

    Yields a `Caught`, whose ``error`` is set when the block ends; its traceback is removed.

    Parameters
    ----------
    kind
        The exception type that is expected, or a tuple of types, as in ``except``.
    match
        A regular expression that is searched for in the message.

    Raises
    ------
    AssertionError
        If the block raises nothing, or the message does not match: the lesson is out of date. Exceptions
        of other types propagate.

    Examples
    --------
    >>> with expect_error(ZeroDivisionError, match="division"):
    ...     1 / 0
    ZeroDivisionError: division by zero
    """
    caught = Caught()
    try:
        yield caught
    except kind as error:
        if not re.search(match, str(error)):
            raise AssertionError(
                _("this block was meant to fail with a message like {match!r}; it said: {error}").format(
                    match=match, error=error
                )
            ) from error
        # A traceback would keep the frames, and so their tensors, alive.
        line = _failing_line(error)
        caught.error = sys.last_value = error.with_traceback(None)  # the last error, for explain()
    else:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(each.__name__ for each in kinds)
        raise AssertionError(_("this block was meant to fail with {names}, and did not").format(names=names))
    _show(caught.error, line)


def _failing_line(error: BaseException) -> str:
    """Return the source line of the cell that raised the error, or ""."""
    frames = traceback.extract_tb(error.__traceback__)
    cell_frames = [frame for frame in frames if frame.name == "<module>" or "ipython" in frame.filename]
    return (cell_frames[-1].line or "") if cell_frames else ""


def _show(error: BaseException, line: str) -> None:
    """Show an error with the source line that raised it, as an error in a cell's output."""
    from .show import Bundle, show

    name, code = type(error).__name__, f"<code>{html.escape(line)}</code>" if line else ""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # ANSI escapes: bold and colour
    show(
        Bundle(
            text=f"{name}: {message}",
            html='<div style="border-left:4px solid #c0392b;padding:.3em .8em;margin:.3em 0">'
            '<div style="opacity:.75;font-size:90%">Raised on purpose, and caught</div>'
            f"{code}"
            '<pre style="white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;margin:.3em 0">'
            f"<b>{name}</b>: {html.escape(message)}</pre></div>",
        )
    )
