"""Drawings of lesson 08: timelines of host and device, and the effect of changes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from course_language import N_, _
from course_lessons.shared.profiling import Facts
from course_lessons.shared.roofline import roofline  # noqa: F401  (a drawing of this lesson)
from course_lessons.shared.traces import Trace
from course_utils.plots import COLOURS, present
from course_utils.show import show_table
from course_utils.timing import seconds
from simgpu.clock import Span

_DOINGS = {
    # kind of span: name in the legend, colour, hatching
    "kernel": (_("computing"), COLOURS[0], ""),
    "copy": (_("copying"), COLOURS[4], "////"),
    "operation": (_("PyTorch's operations"), COLOURS[3], ""),
    "launch": (_("launching"), COLOURS[5], ""),
    "work": (_("loading"), COLOURS[2], "...."),
    "wait": (_("waiting"), "#d0d0cc", ""),
    "phase": ("", "#eeeeea", ""),
}


def timelines(traces: Mapping[str, Trace]) -> None:
    """Draw traces below each other, each with its own time axis; one lane for the host and each device
    engine.

    Spans too short to see are drawn as bars whose height is the share of the time that they cover. ``traces``
    has for each title a trace, as ``traces.trace`` or ``traces.read`` returns it.
    """
    lanes = {title: trace.lanes or [_("host")] for title, trace in traces.items()}
    heights = [0.62 + 0.34 * len(names) for names in lanes.values()]
    size = (8.8, 0.4 + sum(heights))
    fig, axes = plt.subplots(
        len(traces), 1, figsize=size, layout="constrained", height_ratios=heights, squeeze=False
    )
    legend_boxes: dict[str, Rectangle] = {}
    trace_texts, binned = [], False
    for ax, (title, trace) in zip(axes.flat, traces.items(), strict=True):
        unit, scale = ("ms", 1e3) if trace.seconds >= 1e-3 else ("µs", 1e6)
        filled = np.zeros((len(lanes[title]), _BINS))
        for kind, (name, colour, hatch) in _DOINGS.items():
            look = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
            for y, lane in enumerate(lanes[title]):
                spans = [s for s in trace.spans if s.kind == kind and s.lane == lane]
                if not spans:
                    continue
                if name:
                    legend_boxes[name] = Rectangle((0, 0), 1, 1, **look)
                long = [s for s in spans if s.seconds * _BINS > trace.seconds]
                shares = _bin_shares([s for s in spans if s.seconds * _BINS <= trace.seconds], trace)
                if shares.any():
                    binned = True
                    at = np.flatnonzero(shares)
                    width = trace.seconds * scale / _BINS
                    heights_of = 0.8 * shares[at].clip(0.1, 1)
                    lows = y + 0.4 - filled[y, at]
                    ax.bar(at * width, -heights_of, width, lows, align="edge", color=colour)
                    filled[y, at] += heights_of
                # A white edge parts neighbours, but would hide a bar that is only a hairline.
                edges = ["white" if s.seconds > trace.seconds / 150 else "none" for s in long]
                bars = [((s.start - trace.start) * scale, s.seconds * scale) for s in long]
                ax.broken_barh(bars, (y - 0.4, 0.8), **{**look, "edgecolor": edges})
                for (start, length), span in zip(bars, long, strict=True):
                    if kind == "phase" and span.seconds > trace.seconds / 12:
                        at = (start + length / 2, y)
                        ax.annotate(span.name, at, ha="center", va="center", fontsize=8.5)
        ax.set_yticks(range(len(lanes[title])), [_lane_label(lane) for lane in lanes[title]])
        ax.set(ylim=(len(lanes[title]) - 0.5, -0.5), xlim=(0, trace.seconds * scale or 1))
        ax.set_title(
            _("{title} ({kind}, {unit})").format(title=title, kind=_(trace.kind), unit=unit),
            fontsize=10,
        )
        ax.grid(visible=False)
        trace_texts.append(
            _("{title}: {seconds}, device busy {busy:.0%}, host waits {waiting:.0%}").format(
                title=title,
                seconds=seconds(trace.seconds),
                busy=trace.share("kernel"),
                waiting=trace.share("wait", on_host=True),
            )
        )
    names = [name for name, _, _ in _DOINGS.values() if name in legend_boxes]
    looks = [legend_boxes[name] for name in names]
    fig.legend(looks, names, loc="outside upper center", ncols=6, fontsize=9)
    if binned:
        note = _("Bars too short to see become one, as high as their share of the time.")
        fig.supxlabel(note, fontsize=9)
    present(fig, _("Timelines of host and device. {said}.").format(said="; ".join(trace_texts)))


_BINS = 240
"""Bins of a timeline's duration: a span shorter than one is at most two or three pixels wide."""


def _bin_shares(spans: Sequence[Span], trace: Trace) -> np.ndarray:
    """Return for each of `_BINS` equal parts of a trace the share of it that the spans cover."""
    edges = np.linspace(0, trace.seconds, _BINS + 1)
    shares = np.zeros(_BINS)
    for span in spans:
        start, end = span.start - trace.start, span.end - trace.start
        first = int(start / trace.seconds * _BINS)
        for i in range(first, min(first + 2, _BINS)):
            shares[i] += max(0.0, min(end, edges[i + 1]) - max(start, edges[i]))
    return shares / (trace.seconds / _BINS)


def _lane_label(lane: str) -> str:
    """Return a lane's name as it is displayed."""
    ours = {
        "compute": _("device"),
        "host to device": _("to device"),
        "device to host": _("to host"),
    }
    ours["device copy"] = N_("copies")
    return next((name for words, name in ours.items() if words in lane), lane)


def facts(loops: Mapping[str, Facts], kind: str | Sequence[str]) -> None:
    """Show the `Facts` of loops or recordings as a table, a row for each.

    ``kind`` is ``"measured"``, ``"modelled"`` or ``"published"``; a list if the rows differ.
    """
    head = ("", _("per step"), _("device computes"), _("host loads"), _("host waits"))
    head += (_("of best FLOP/s"), _("of best bytes/s"), _("kernels"), _("each"))
    rows = []
    for name, f in loops.items():
        shares = (f.busy, f.loading, f.waiting, f.flop_share, f.byte_share)
        written = ("–" if math.isnan(share) else f"{share:.0%}" for share in shares)
        kernels = f"{f.kernels:.0f}", seconds(f.kernel_seconds)
        rows.append((name, seconds(f.seconds), *written, *kernels))
    kinds = [kind] * len(rows) if isinstance(kind, str) else list(kind)
    alike = len(set(kinds)) == 1
    if not alike:
        head += (_("kind"),)
        rows = [(*row, of) for row, of in zip(rows, kinds, strict=True)]
    which = _("All {first_kind}; shares").format(first_kind=_(kinds[0])) if alike else _("Shares")
    note = _("{which} of the time, and of the best rates while the device computes.").format(which=which)
    if any("–" in row for row in rows):
        note += _(" –: a recording does not tell.")
    show_table(head, rows, kinds, note)


def busy_but(loops: Mapping[str, tuple[float, float]], kind: str) -> None:
    """Draw for each loop the share of the time that kernels ran, and its share of the best FLOP/s.

    ``loops`` has for each name these two shares, from 0 to 1; ``kind`` is ``"measured"`` or ``"modelled"``.
    """
    fig, ax = plt.subplots(figsize=(7.6, 0.8 * len(loops) + 1.0), layout="constrained")
    for i, (name, hatch) in enumerate(((_("of the time a kernel ran"), ""), (_("of the best FLOP/s"), "//"))):
        values = [100 * shares[i] for shares in loops.values()]
        look = {"color": COLOURS[i], "hatch": hatch, "edgecolor": "white", "label": name}
        bars = ax.barh(np.arange(len(loops)) + (i - 0.5) * 0.38, values, 0.36, **look)
        ax.bar_label(bars, [_percent_text(value) for value in values], padding=3, fontsize=9)
    ax.set_yticks(range(len(loops)), list(loops))
    ax.set(
        ylim=(len(loops) - 0.5, -0.5),
        xlim=(0, 115),
        xlabel=_("share, % ({kind})").format(kind=_(kind)),
    )
    ax.grid(axis="y", visible=False)
    fig.legend(loc="outside upper center", ncols=2)
    each = "; ".join(
        _("{n}: {a:.0%} of the time, {b:.2%} of the best FLOP/s").format(n=n, a=a, b=b)
        for n, (a, b) in loops.items()
    )
    present(
        fig,
        _("How long a kernel ran, and how much of the best FLOP/s was reached. {each}.").format(each=each),
    )


def _percent_text(value: float) -> str:
    """Return a percentage as text."""
    if value < 0.01:
        return _("under 0.01 %")
    return f"{value:.0f} %" if value >= 1 else f"{value:.2f} %"


def changes(gains: Mapping[str, Mapping[str, float]], kind: str) -> None:
    """Draw a table of the speed-up of each loop by each change.

    ``gains`` has for each loop, for each change, the old time per sample over the new, or nan if the change
    does not apply; ``kind`` is ``"measured"`` or ``"modelled"``.
    """
    names = list(next(iter(gains.values())))
    values = np.array([[row[name] for name in names] for row in gains.values()])
    size = (1.15 * len(names) + 2.2, 0.5 * len(gains) + 1.5)
    fig, ax = plt.subplots(figsize=size, layout="constrained")
    shades = np.log2(np.nan_to_num(values, nan=1.0).clip(0.125, 8))
    ax.imshow(shades, cmap="PuOr_r", vmin=-3, vmax=3, aspect="auto", alpha=0.8)
    for (row, column), value in np.ndenumerate(values):
        strong = "bold" if value >= 1.2 else "normal"
        written = "–" if math.isnan(value) else f"{value:.2f}" if value < 10 else f"{value:.0f}"
        ax.text(column, row, written, ha="center", va="center", weight=strong)
    ax.set_xticks(range(len(names)), [textwrap.fill(name, 11) for name in names])
    ax.set_yticks(range(len(gains)), list(gains))
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(
        _("times as fast as before ({kind}); bold from 1.2 on; – nothing to change").format(kind=_(kind))
    )
    best = "; ".join(
        f"{loop}: {', '.join(f'{n} {gain:.2g}' for n, gain in row.items() if not math.isnan(gain))}"
        for loop, row in gains.items()
    )
    present(fig, _("Times as fast by each change. {best}.").format(best=best))
