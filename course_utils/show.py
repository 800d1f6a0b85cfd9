"""Display output as HTML in a notebook and as text elsewhere."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from course_language import N_, _
from course_language.punctuation import punctuated

from .course import load_course
from .this_machine import in_notebook


@dataclass(frozen=True)
class Bundle:
    """Output as ``text`` for a terminal and ``html`` for a notebook; ``extra`` has more, by MIME type."""

    text: str
    html: str
    extra: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return punctuated(self.text)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": repr(self), "text/html": punctuated(self.html), **self.extra}


def show(bundle: Bundle) -> None:
    """Display output in a notebook, print its text elsewhere."""
    if in_notebook():
        from IPython.display import display

        display(bundle)
    else:
        print(bundle)


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], classes: Sequence[str] = ()) -> tuple[str, str]:
    """Return a table as aligned text and as HTML.

    Parameters
    ----------
    head
        The column names.
    rows
        The cells; each is shown with ``str``.
    classes
        For each row a kind (``"measured"``, ``"recorded"``, ``"modelled"``, ``"published"``), which
        determines its style, or ""; missing ones are "".
    """
    texts = [[_(cell) if cell in LOOK else str(cell) for cell in row] for row in [head, *rows]]
    head, *cells = texts
    widths = [max(len(line[i]) for line in texts) for i in range(len(head))]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in texts]
    kinds = list(classes) + [""] * (len(rows) - len(classes))
    body = "".join(
        f'<tr style="{LOOK.get(kind, "")}">'
        + "".join(
            f'<td style="text-align:left{_NO_WRAP if len(cell) <= 24 else ""}">{html.escape(cell)}</td>'
            for cell in row
        )
        + "</tr>"
        for row, kind in zip(cells, kinds, strict=True)
    )
    titles = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in head)
    page = f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"
    return "\n".join(lines), page


REAL_GPUS = "handbook/fidelity.md"


@cache
def real_gpus_link() -> str:
    """Return the HTML line below tables with modelled numbers: a link to their comparison with real GPUs."""
    course, label = load_course(), _("How far the simulated GPU is from real ones")
    if course.repository or (course.path.parent.parent / REAL_GPUS).is_file():
        label = f'<a href="{course.page(REAL_GPUS)}">{label}</a>'
    else:  # the installed package alone
        label += _(": handbook/fidelity.md, in the course's folder")
    return f"<div><small>{label}</small></div>"


def show_table(
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    kinds: Sequence[str],
    note: str = "",
    sources: Sequence[str] = (),
) -> None:
    """Show a table, with a note in small print below it, and folded what its numbers rest on.

    Parameters
    ----------
    head
        The columns' titles.
    rows
        The cells.
    kinds
        For each row ``"measured"``, ``"recorded"``, ``"modelled"`` or ``"published"``.
    note
        Text below the table; each line is a paragraph of its own.
    sources
        Sentences on where the numbers come from and how sure they are. A front end folds them, together
        with the link for modelled numbers.
    """
    text, page = table(head, rows, kinds)
    for line in note.splitlines():
        page += _small(line)
    folded = "".join(map(_small, sources)) + (real_gpus_link() if "modelled" in kinds else "")
    if folded:
        summary = html.escape(_("Where these numbers come from"))
        page += f"<details><summary><small>{summary}</small></summary>{folded}</details>"
    show(Bundle("\n".join([text, *note.splitlines(), *sources]), page))


def _small(line: str) -> str:
    """Return a line of small print, as HTML."""
    return f"<div><small>{html.escape(line)}</small></div>"


_NO_WRAP = ";white-space:nowrap"  # no line break in a short cell, such as a number and its unit

# The CSS style of a table's row for each kind of number; readable on light and dark pages.
LOOK = {
    N_("measured"): "font-weight:bold",
    N_("recorded"): "",
    N_("modelled"): "font-style:italic",
    N_("published"): "opacity:.8",
}
