"""What the drawings of several lessons share."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ..plots import COLOURS
from ..show import Bundle, show, table

BLUE, ORANGE, GREEN = COLOURS[:3]


def show_table(
    head: Sequence[str], rows: Sequence[Sequence[object]], kinds: Sequence[str], note: str = ""
) -> None:
    """Show a table, with a note in small print below it.

    Parameters
    ----------
    head
        The columns' titles.
    rows
        The cells.
    kinds
        For each row ``"measured"``, ``"recorded"``, ``"modelled"`` or ``"published"``.
    note
        What to say below it, if anything.
    """
    text, page = table(head, rows, kinds)
    if note:
        text = f"{text}\n{note}"
        page += f"<div><small>{html.escape(note)}</small></div>"
    show(Bundle(text, page))
