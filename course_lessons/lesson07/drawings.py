"""Drawings of lesson 07: the allocator's segments, memory over time, and what saving memory costs."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from course_language import _
from course_utils.plots import BLUE, COLOURS, DASHES, MARKERS, log_ticks, present
from course_utils.timing import seconds

_IN_USE = {"facecolor": BLUE, "edgecolor": "#444444"}
_IDLE = {"facecolor": "white", "edgecolor": "#444444", "hatch": "///"}


def memory_map(segments: Sequence[Mapping[str, Any]], most: int = 8) -> None:
    """Draw an allocator's ``most`` largest segments as bars, with the blocks that are in use.

    ``segments`` is what ``torch.cuda.memory_snapshot()`` returns; if it is empty, a line says so.
    """
    largest = sorted(segments, key=lambda segment: segment["total_size"], reverse=True)[:most]
    if not largest:
        print(_("No segment is reserved."))
        return
    largest.sort(key=lambda segment: segment["address"])
    fig, ax = plt.subplots(figsize=(7.6, 0.42 * len(largest) + 1.1), layout="constrained")
    for row, segment in enumerate(largest):
        for block in segment["blocks"]:
            look = _IDLE if block["state"] == "inactive" else _IN_USE
            left = (block["address"] - segment["address"]) / 2**20
            ax.barh(row, block["size"] / 2**20, left=left, height=0.7, **look)
    left_out = _(", of {n_segments}").format(n_segments=len(segments)) * (len(segments) > most)
    ax.set(
        xlabel=_("MiB from the segment's start"),
        ylabel=_("segment"),
        ylim=(len(largest) - 0.5, -0.5),
    )
    ax.set_yticks(range(len(largest)), [str(row + 1) for row in range(len(largest))])
    ax.grid(False)
    looks = [Rectangle((0, 0), 1, 1, **look) for look in (_IN_USE, _IDLE)]
    fig.legend(looks, [_("in use"), _("idle, and kept")], loc="outside upper center", ncols=2)
    used = sum(segment["allocated_size"] for segment in largest) / 2**20
    total = sum(segment["total_size"] for segment in largest) / 2**20
    present(
        fig,
        _(
            "{n_largest} segments{left_out}, as bars: {used:.0f} of {total:.0f} MiB are in use; "
            "what is free lies between pieces in use."
        ).format(n_largest=len(largest), left_out=left_out, used=used, total=total),
    )


def after_each_batch(used: Mapping[str, Sequence[float]]) -> None:
    """Draw the MiB in use after each batch of some loops, a line for each loop.

    ``used`` has for each loop's name the values after batch 1, 2, ...; lines that coincide stay visible.
    """
    fig, ax = plt.subplots(layout="constrained")
    styles = itertools.cycle(((7.0, "-"), (4.0, "-"), (1.5, "--")))
    for (name, values), (width, dash), colour in zip(used.items(), styles, COLOURS, strict=False):
        ax.plot(range(1, 1 + len(values)), values, dash, color=colour, linewidth=width, label=name)
    ax.set(xlabel=_("batches so far"), ylabel=_("allocated, MiB"), ylim=(0, None))
    ax.legend()
    description = "; ".join(f"{n} {', '.join(f'{v:.1f}' for v in values)}" for n, values in used.items())
    present(fig, _("MiB in use after each batch of a loop: {each}.").format(each=description))


def batch_curve(rows: Sequence[int], peaks: Sequence[float], drawn: Sequence[object], kind: str) -> None:
    """Draw peak memory in MiB against the rows in a batch, and the curve that the learner has guessed.

    ``drawn`` has the guess for each item of ``rows``, in MiB; what is not a number is left out. ``kind`` is
    ``"measured"`` or ``"modelled"``.
    """
    pairs = zip(rows, drawn, strict=False)
    guesses = [(n, float(guess)) for n, guess in pairs if isinstance(guess, int | float)]
    fig, ax = plt.subplots(layout="constrained")
    slope, start = np.polyfit(rows[-2:], peaks[-2:], 1)
    ends = [0, rows[-1]], [start, start + slope * rows[-1]]
    ax.plot(*ends, color="#888888", linewidth=1, label=_("the last two points' line"), zorder=1)
    ax.plot(
        rows,
        peaks,
        marker=MARKERS[0],
        linestyle=DASHES[kind],
        label=_("the peak ({kind})").format(kind=_(kind)),
    )
    if guesses:
        ax.plot(*zip(*guesses, strict=True), marker=MARKERS[1], linestyle="--", label=_("you drew"))
    ax.set(xlabel=_("rows in the batch"), ylabel=_("peak memory, MiB"), ylim=(0, None))
    ax.set_xticks(list(rows), [str(n) for n in rows], rotation=45)
    ax.legend()
    no_guess_note = "" if guesses else _(" No curve of yours is there to compare.")
    present(
        fig,
        _(
            "Peak memory is level for small batches, then a straight line up to {last_peak:.0f} MiB for "
            "{last_row} rows.{said}"
        ).format(last_peak=peaks[-1], last_row=rows[-1], said=no_guess_note),
    )


def means(costs: Mapping[str, tuple[int, float]], kind: str) -> None:
    """Draw the peak memory and the time of each method of saving memory, relative to the first.

    ``costs`` has for each method the peak in bytes and the seconds of a step. ``kind`` is ``"measured"`` or
    ``"modelled"``.
    """
    usual, usual_time = next(iter(costs.values()))
    shares = {name: (peak / usual, time / usual_time) for name, (peak, time) in costs.items()}
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(8.8, 0.34 * len(costs) + 0.9), sharey=True, layout="constrained"
    )
    places = range(len(costs))
    memory, time = ([values[i] for values in shares.values()] for i in (0, 1))
    peaks = [f" {peak / 2**20:.1f} MiB" for peak, _ in costs.values()]
    left.bar_label(left.barh(places, [100 * share for share in memory], color=BLUE), peaks)
    left.axvline(100, color="#555555", linewidth=1)
    left.set(xlabel=_("peak memory, % of the plain step's"), xlim=(0, 136 * max(memory)))
    left.set_yticks(places, list(costs))
    left.invert_yaxis()
    right.plot(time, places, MARKERS[0], color=COLOURS[1])
    for place, value in zip(places, time, strict=True):
        beside = {"xytext": (7, 0), "textcoords": "offset points", "va": "center"}
        right.annotate(f"{value:.2f}×", (value, place), **beside)
    right.axvline(1, color="#555555", linewidth=1)
    right.set(
        xlabel=_("time, × the plain step's {usual_time} ({kind})").format(
            usual_time=seconds(usual_time), kind=_(kind)
        ),
        xscale="log",
    )
    right.set_xlim(min(time) / 1.4, max(time) * 2)
    log_ticks(right.xaxis)
    each = "; ".join(
        _("{name}{peak}, {share:.0%} of the memory in {value:.2f} times the time").format(
            name=name, peak=peak, share=share, value=value
        )
        for (name, (share, value)), peak in zip(shares.items(), peaks, strict=True)
    )
    present(
        fig,
        _("Each way of saving memory by what it saves and what it costs: {each}.").format(each=each),
    )
