"""The result of a check, and its display as text and HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from course_language import _

from ..show import Bundle

Outcome = Literal["not_tried", "raised", "not_yet", "right"]

RESULT_MIME = "application/vnd.gpu-course.result+json"
"""The MIME type of a displayed result's data (exercise, outcome, diagnosis), for tests and tools."""

HEADLINES: Mapping[Outcome, str] = {
    "not_tried": _("Not tried yet"),
    "raised": _("Your code stopped with an error"),
    "not_yet": _("Not yet"),
    "right": _("Right"),
}


@dataclass(frozen=True)
class Result:
    """The result of a check.

    ``exercise`` and ``diagnosis`` are ids; ``text`` is what the outcome means, ``details`` are (label, text)
    pairs such as what was seen, ``printed`` is the answer's output, and ``aside`` a mention of the hints.
    """

    exercise: str
    outcome: Outcome
    diagnosis: str = ""
    text: str = ""
    details: tuple[tuple[str, str], ...] = ()
    printed: str = ""
    aside: str = ""

    def bundle(self) -> Bundle:
        """Return the result as a displayable object: text, HTML, and data of type `RESULT_MIME`."""
        headline = f"{HEADLINES[self.outcome]} · {self.exercise}"
        details = [
            *self.details,
            *([(_("Your code printed"), self.printed)] if self.printed else []),
        ]
        lines = [headline, *([self.text] if self.text else [])]
        lines += [f"{name}{_(': ')}{value}" for name, value in details]
        lines += [self.aside] if self.aside else []
        colour = _COLOURS[self.outcome]
        body = "".join(
            f'<div style="margin-top:.3em"><span style="opacity:.75">{html.escape(name)}</span>'
            '<pre style="margin:.1em 0 0 1em;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere">'
            f"{html.escape(value)}</pre></div>"
            for name, value in details
        )
        if self.aside:
            body += f'<div style="margin-top:.3em;opacity:.75">{_inline(self.aside)}</div>'
        return Bundle(
            text="\n".join(lines),
            html=f'<div style="border-left:4px solid {colour};padding:.4em .9em;margin:.3em 0">'
            f'<b style="color:{colour}">{HEADLINES[self.outcome]}</b>'
            f"<div>{_inline(self.text)}</div>{body}</div>",
            extra={
                RESULT_MIME: {
                    "exercise": self.exercise,
                    "outcome": self.outcome,
                    "diagnosis": self.diagnosis,
                }
            },
        )


_COLOURS = {"not_tried": "", "raised": "#c0392b", "not_yet": "#c77700", "right": "#2a9d5c"}


def _inline(text: str) -> str:
    """Return a text as HTML: escaped, with Markdown's `code` and **bold** converted."""
    parts = html.escape(text).split("`")
    coded = "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
    bold = coded.split("**")
    return "".join(f"<b>{part}</b>" if i % 2 else part for i, part in enumerate(bold))
