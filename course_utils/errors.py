"""Deliberate errors: caught, checked and shown, so that the notebook goes on."""

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
    """The error that a block raised on purpose; ``error`` is None until then."""

    error: BaseException | None = None

    @property
    def message(self) -> str:
        """The error's message, as a learner would read it."""
        return str(self.error)


@contextmanager
def expect_error(
    kind: type[BaseException] | tuple[type[BaseException], ...], match: str = ""
) -> Iterator[Caught]:
    """Run a block that must fail, and show its error as the learner would see it.

    Parameters
    ----------
    kind
        The type the error must have, or several of which it must have one.
    match
        A regular expression that the message must contain.

    Raises
    ------
    AssertionError
        Where the block does not fail, or fails in another way: then the lesson is out of date.

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
        # Without its traceback the error keeps no frame, and so no tensor, alive.
        line = _line(error)
        caught.error = sys.last_value = error.with_traceback(None)  # the last error, for explain()
    else:
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = " or ".join(one.__name__ for one in kinds)
        raise AssertionError(_("this block was meant to fail with {names}, and did not").format(names=names))
    _show(caught.error, line)


def _line(error: BaseException) -> str:
    """The source line in the learner's cell that failed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.name == "<module>" or "ipython" in frame.filename]
    return (own[-1].line or "") if own else ""


def _show(error: BaseException, line: str) -> None:
    from .show import Bundle, show

    name, code = type(error).__name__, f"<code>{html.escape(line)}</code>" if line else ""
    message = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # a terminal's bold and colour
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
