"""A tqdm progress bar that stays a single line of output, live and in an executed notebook."""

from __future__ import annotations

import html
from typing import Any

from tqdm import tqdm

from course_language import _

from .this_machine import in_notebook


class bar(tqdm):
    """A progress bar around an iterable; takes the arguments of ``tqdm``.

    In a notebook it is one display that is updated in place, so an executed notebook has a single finished
    line; elsewhere it is tqdm's text bar.

    Examples
    --------
    >>> for batch in bar(loader, desc="epoch 1"):
    ...     ...
    """

    _handle: Any = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._notebook = in_notebook()
        if self._notebook:
            kwargs["gui"] = True  # as tqdm's own notebook bar does: draw nothing on stderr
        super().__init__(*args, **kwargs)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar; called by tqdm."""
        if not self._notebook:
            super().display(msg, pos)
            return
        data = dict(self.format_dict)
        data["prefix"] = data["prefix"] and data["prefix"].removesuffix(": ") + _(": ")
        done, total = data["n"], data["total"]
        meter = f'<progress value="{done}" max="{total}" style="width:16em"></progress> '
        form = data["bar_format"] or (_LINE if total else None)
        text = self.format_meter(**{**data, "ncols": None, "bar_format": form})
        output = {
            "text/plain": text,
            "text/html": f"<div>{meter if total else ''}"
            f'<code style="background:none">{html.escape(text)}</code></div>',
        }
        if self._handle is None:
            from IPython.display import display

            self._handle = display(output, raw=True, display_id=True)
        else:
            self._handle.update(output, raw=True)

    def close(self) -> None:
        """Draw the finished bar and close it; called by tqdm."""
        was_open = not self.disable
        super().close()
        if self._notebook and was_open:
            self.display()

    def clear(self, *args: Any, **kwargs: Any) -> None:
        """Clear the bar's line on a terminal; do nothing in a notebook. Called by tqdm."""
        if not self._notebook:
            super().clear(*args, **kwargs)


_LINE = "{desc}{percentage:3.0f}% {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}{postfix}]"
