"""The spans of the virtual clock as a figure, a table and a trace file."""

from __future__ import annotations

import html
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .clock import Span
from .messages import N_, _

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_KINDS = {
    "kernel": ("computing", "#0072B2", ""),
    "copy": ("copying", "#E69F00", "////"),
    "launch": ("launching", "#56B4E9", ""),
    "work": ("loading", "#009E73", "...."),
    "wait": ("waiting", "#d0d0cc", ""),
}
"""For each kind of span: its name in the legend, its colour, its hatching."""


def seconds(value: float) -> str:
    """Format a time given in seconds with three digits and a suitable unit: ``"1.23 ms"``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def _cell(text: str) -> str:
    """Return a text as an HTML table cell; short texts do not wrap."""
    # A figure and its unit stay on one line.
    keep = ";white-space:nowrap" if len(text) <= 24 else ""
    return f'<td style="text-align:left{keep}">{html.escape(text)}</td>'


class Table:
    """A table: ``text`` for a terminal, ``html`` for a notebook, which displays it by itself.

    ``head`` are the column names.
    """

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


class Timeline:
    """The spans recorded in a period, in the order in which they were issued.

    Parameters
    ----------
    spans
        The spans; a list is not copied and may still grow. Times are modelled, in seconds.
    """

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self.spans = spans if isinstance(spans, list) else list(spans)

    @property
    def start(self) -> float:
        """The start of the first span, in seconds."""
        return min((span.start for span in self.spans), default=0.0)

    @property
    def seconds(self) -> float:
        """The duration from the start of the first span to the end of the last, in seconds."""
        return max((span.end for span in self.spans), default=0.0) - self.start

    @property
    def lanes(self) -> list[str]:
        """The names of the lanes with spans: first the host, then each device's engines."""
        order = ("host", "host to device", "compute", "device to host", "device to device")

        def sort_key(lane: str) -> tuple[str, int]:
            device, __, engine = lane.partition(" ")
            return ("", 0) if lane == "host" else (device, order.index(engine))

        return sorted({span.lane for span in self.spans}, key=sort_key)

    @property
    def races(self) -> list[Span]:
        """The spans that used memory another stream may still have been writing."""
        return [span for span in self.spans if span.race]

    def busy_seconds(self, lane: str) -> float:
        """Return the seconds for which a lane is busy; the host is not busy while it waits."""
        return sum(end - start for start, end in self._busy_intervals(lane))

    def overlap_seconds(self, lane: str, other: str) -> float:
        """Return the seconds for which two lanes are busy at the same time."""
        total, first, second = 0.0, self._busy_intervals(lane), self._busy_intervals(other)
        i = j = 0
        while i < len(first) and j < len(second):
            total += max(0.0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
            if first[i][1] < second[j][1]:
                i += 1
            else:
                j += 1
        return total

    def _busy_intervals(self, lane: str) -> list[tuple[float, float]]:
        """Return the (start, end) intervals in which a lane is busy, sorted and disjoint."""
        merged: list[tuple[float, float]] = []
        for span in sorted(self.spans, key=lambda span: span.start):
            if span.lane != lane or span.kind == "wait":
                continue
            if merged and span.start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], span.end))
            else:
                merged.append((span.start, span.end))
        return merged

    def table(self, rows: int = 10) -> Table:
        """Return a table of the device operations with the longest total time: calls and modelled time.

        Parameters
        ----------
        rows
            The maximum number of rows.
        """
        groups: dict[tuple[str, str], list[float]] = defaultdict(list)
        for span in self.spans:
            if span.kind in ("kernel", "copy") and span.lane != "host":
                groups[span.lane, span.name].append(span.seconds)
        longest = sorted(groups.items(), key=lambda item: -sum(item[1]))[:rows]
        cells = [
            (name, lane, len(times), seconds(sum(times)), seconds(sum(times) / len(times)))
            for (lane, name), times in longest
        ]
        head = (_("Operation"), _("Where"), _("Calls"), _("Total, modelled"), _("Each"))
        return Table(head, cells)

    def plot(self, title: str | None = None, until: float | None = None) -> Figure:
        """Return a matplotlib figure with one lane for the host and one for each device engine.

        Show it with ``plots.present(timeline.plot(), timeline.alt())``.

        Parameters
        ----------
        title
            A short title; "(modelled)" is appended.
        until
            The end of the time axis, in seconds after the start, for two timelines to be compared. By
            default the end of this one.
        """
        import matplotlib.pyplot as plt
        from matplotlib.patches import Patch

        lanes = self.lanes
        length = until or self.seconds
        unit, scale = ("ms", 1e3) if length >= 1e-3 else ("µs", 1e6)
        fig, ax = plt.subplots(figsize=(7.6, 1.5 + 0.5 * len(lanes)), layout="constrained")
        legend = []
        for kind, (label, colour, hatch) in _KINDS.items():
            spans = [span for span in self.spans if span.kind == kind]
            if spans:
                style = {
                    "facecolor": colour,
                    "hatch": hatch,
                    "edgecolor": "white",
                    "linewidth": 0.5,
                }
                legend.append(Patch(label=label, **style))
            for y, lane in enumerate(lanes):
                bars = [
                    ((span.start - self.start) * scale, span.seconds * scale)
                    for span in spans
                    if span.lane == lane
                ]
                if bars:
                    # A white edge separates adjacent bars, but would hide a very narrow one.
                    wide = length * scale / 150
                    edges = ["white" if width > wide else colour for _, width in bars]
                    ax.broken_barh(
                        bars,
                        (y - 0.36, 0.72),
                        facecolor=colour,
                        hatch=hatch,
                        edgecolor=edges,
                        linewidth=0.5,
                    )
        for span in self.races:
            x, y = (span.start - self.start) * scale, lanes.index(span.lane)
            (marker,) = ax.plot(x, y - 0.36, "v", color="#D55E00", label=_("race"), clip_on=False)
            legend += [marker] if span is self.races[0] else []
        ax.set_yticks(range(len(lanes)), map(_lane_title, lanes))
        ax.set_ylim(max(1, len(lanes)) - 0.5, -0.5)
        if length:
            ax.set_xlim(-0.02 * length * scale, 1.02 * length * scale)
        ax.set_xlabel(_("modelled time ({unit})").format(unit=unit))
        ax.grid(visible=False, axis="y")
        ax.set_title(_("{title} (modelled)").format(title=title) if title else _("Modelled timeline"))
        if self.spans:
            ax.legend(handles=legend, loc="upper left", bbox_to_anchor=(1, 1))
        return fig

    def alt(self) -> str:
        """Return the alternative text of the figure, one sentence."""
        if not self.spans:
            return _("An empty modelled timeline.")
        parts = [
            _("{lane_title} is busy for {busy_seconds}").format(
                lane_title=_lane_title(lane), busy_seconds=seconds(self.busy_seconds(lane))
            )
            for lane in self.lanes
        ]
        return _("Modelled timeline of {seconds}: {parts}.").format(
            seconds=seconds(self.seconds), parts=", ".join(parts)
        )

    def export(self, path: str | Path) -> Path:
        """Write a Chrome trace (JSON) for https://ui.perfetto.dev or chrome://tracing, and return its path.

        Parameters
        ----------
        path
            The file to write, such as ``"trace.json"``.
        """
        path = Path(path)
        trace = {"displayTimeUnit": "ms", "traceEvents": _events(self.spans, self.lanes)}
        path.write_text(json.dumps(trace), encoding="utf-8")
        return path


_LANES = {
    "host": N_("host"),
    "compute": N_("compute"),
    "host to device": N_("host to device"),
    "device to host": N_("device to host"),
    "device to device": N_("device to device"),
}


def _lane_title(lane: str) -> str:
    """Return a lane's display name, translated."""
    device, __, engine = lane.rpartition(" ") if lane == "host" else lane.partition(" ")
    return f"{device} {_(_LANES[engine])}".strip()


def _events(spans: Sequence[Span], lanes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the events of a Chrome trace: one process for the host and each device, one thread per lane."""
    owners = list(dict.fromkeys(lane.split(" ")[0] for lane in lanes))
    tracks = {lane: (owners.index(lane.split(" ")[0]), i) for i, lane in enumerate(lanes)}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"{owner} (modelled)"}}
        for pid, owner in enumerate(owners)
    ]
    for lane, (pid, tid) in tracks.items():
        thread = {"name": lane.partition(" ")[2] or lane}
        events.append({"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": thread})
    for span in spans:
        pid, tid = tracks[span.lane]
        # In µs, both ends on whole ns: Perfetto drops an event that overlaps its neighbour by rounding.
        start, end = (round(seconds * 1e6, 3) for seconds in (span.start, span.end))
        details = {"stream": span.stream, "bytes": span.bytes, "flops": span.flops}
        events.append(
            {
                "ph": "X",
                "pid": pid,
                "tid": tid,
                "name": span.name,
                "cat": span.kind,
                "ts": start,
                "dur": round(end - start, 3),
                "args": {**details, "race": True} if span.race else details,
            }
        )
    return events
