"""What the timeline shows: times in words, and a table as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any


def seconds(value: float) -> str:
    """Write a time given in seconds with three digits and a fitting unit: ``"1.23 ms"``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _cell(text: str) -> str:
    # A figure and its unit stay on one line.
    keep = ";white-space:nowrap" if len(text) <= 24 else ""
    return f'<td style="text-align:left{keep}">{html.escape(text)}</td>'


class Table:
    """Rows under column names: ``text`` for a terminal, ``html`` for a notebook, which shows it by itself."""

    def __init__(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        cells = [[str(cell) for cell in row] for row in rows]
        widths = [max(len(line[i]) for line in [head, *cells]) for i in range(len(head))]
        self.text = "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [head, *cells]
        )
        left = 'style="text-align:left"'
        titles = "".join(f"<th {left}>{html.escape(name)}</th>" for name in head)
        body = "".join(
            f'<tr style="font-style:italic">{"".join(map(_cell, row))}</tr>'  # modelled: set in italics
            for row in cells
        )
        self.html = f"<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return {"text/plain": self.text, "text/html": self.html}
