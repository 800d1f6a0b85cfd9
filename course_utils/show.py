"""Show a thing as HTML in a notebook and as text anywhere else."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .host import in_notebook


@dataclass(frozen=True)
class Bundle:
    """One piece of output in two forms: ``text`` for a terminal or a test, ``html`` for a notebook."""

    text: str
    html: str
    extra: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": self.text, "text/html": self.html, **self.extra}


def show(bundle: Bundle) -> None:
    """Display it in a notebook, print it elsewhere."""
    if in_notebook():
        from IPython.display import display

        display(bundle)
    else:
        print(bundle.text)


def table(
    head: Sequence[str], rows: Sequence[Sequence[Any]], classes: Sequence[str] = ()
) -> tuple[str, str]:
    """Return a table as aligned text and as HTML.

    Parameters
    ----------
    head
        The column names.
    rows
        The cells; each is shown with ``str``.
    classes
        For each row a kind (``"measured"``, ``"recorded"``, ``"modelled"``, ``"published"``), which
        gives the row its look; or nothing.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(head), *cells]) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in [list(head), *cells]
    ]
    looks = list(classes) + [""] * (len(rows) - len(classes))
    body = "".join(
        f'<tr style="{LOOK.get(look, "")}">'
        + "".join(
            f'<td style="text-align:left{_KEEP if len(cell) <= 24 else ""}">{html.escape(cell)}</td>'
            for cell in row
        )
        + "</tr>"
        for row, look in zip(cells, looks, strict=True)
    )
    titles = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in head)
    return "\n".join(lines), f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"


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


_KEEP = ";white-space:nowrap"  # a figure and its unit, or a date, stay on one line

# One look for each kind of number, in every table, readable on a light and on a dark page.
LOOK = {
    "measured": "font-weight:bold",
    "recorded": "",
    "modelled": "font-style:italic",
    "published": "opacity:.8",
}


def seconds(value: float) -> str:
    """Write a time given in seconds with three digits and a fitting unit: ``"1.23 ms"``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


_SIZES = {
    "B": (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("B", 1)),
    "B/s": (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1)),
    "FLOP/s": (
        ("PFLOP/s", 1e15),
        ("TFLOP/s", 1e12),
        ("GFLOP/s", 1e9),
        ("MFLOP/s", 1e6),
        ("FLOP/s", 1),
    ),
}

SHARES = ("accuracy", "fraction", "share")
"""A quantity with one of these words in its name lies between 0 and 1."""


def is_share(quantity: str) -> bool:
    """Return whether a quantity is a part of a whole, such as a test accuracy."""
    return any(word in quantity for word in SHARES)


def amount(value: float, unit: str = "s", quantity: str = "") -> str:
    """Write a number with three digits and a fitting unit.

    Parameters
    ----------
    value
        The number, in ``unit``.
    unit
        ``"s"``, ``"B"`` (written in KiB, MiB, GiB), ``"B/s"``, ``"FLOP/s"``, ``"1"`` or another unit, such
        as ``"samples/s"``, which is written as it is.
    quantity
        What it is: a unit of ``"1"`` is written as a percentage for a share, and as ``×`` for a
        ``"speed-up"``.

    Examples
    --------
    >>> amount(0.0123), amount(3 * 2**20, "B"), amount(4.0, "1", "speed-up"), amount(0.97, "1", "accuracy")
    ('12.3 ms', '3 MiB', '4×', '97 %')
    """
    if unit == "s":
        return seconds(value) if abs(value) < 7200 else f"{_digits(value / 3600)} h"
    if unit == "1" and is_share(quantity):
        return f"{_digits(100 * value)} %"
    if unit == "1":
        return _digits(value) + ("×" if quantity == "speed-up" else "")
    sizes = _SIZES.get(unit, ((unit, 1),))
    name, size = next((pair for pair in sizes if abs(value) >= pair[1]), sizes[-1])
    return f"{_digits(value / size)} {name}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
