"""Drawings of lesson 11: memory by ZeRO stage, FSDP's step, a device mesh, a pipeline, the efficiency of
many GPUs, and causal attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from course_language import N_, _
from course_utils.number_format import amount
from course_utils.plots import BLUE, COLOURS, GREEN, ORANGE, curves, present
from simgpu.cluster import Run

from . import timeline

_HATCHES = ("", "////", "....")
_COLOURS = (ORANGE, "////"), (COLOURS[3], "...."), (BLUE, ""), (COLOURS[5], "")
_LOOKS = dict(zip((N_("gather"), N_("scatter"), N_("forward"), N_("backward")), _COLOURS, strict=True))


def memory(cases: Mapping[str, Mapping[str, float]], card: float) -> tuple[Figure, str]:
    """Return a figure of the memory on each rank, and its alternative text.

    ``cases`` has for each name the bytes on a rank by kind of tensor; ``card`` is a card's memory in bytes.
    """
    fig, ax = plt.subplots(figsize=(8.8, 0.55 * len(cases) + 1.5))
    fig.subplots_adjust(left=0.19, right=0.98, top=0.86, bottom=0.17)  # quicker than to lay it out
    longest = max([card, *(sum(parts.values()) for parts in cases.values())]) / 1e9
    for row, parts in enumerate(cases.values()):
        left = 0.0
        for number, (kind, size) in enumerate(parts.items()):
            look = {"color": COLOURS[number], "hatch": _HATCHES[number % 3], "edgecolor": "white"}
            label = kind if row == 0 else None
            ax.barh(row, size / 1e9, left=left, height=0.66, linewidth=0.8, label=label, **look)
            left += size / 1e9
        box = {"facecolor": "#fdfdfb", "edgecolor": "none", "pad": 1.0}
        place = left + 0.012 * longest
        ax.text(place, row, amount(left, "GB"), va="center", fontsize=9.5, bbox=box)
    ax.axvline(
        card / 1e9,
        color="#333333",
        linestyle="--",
        label=_("a card's {card:g} GB").format(card=card / 1e9),
    )
    ax.set_yticks(range(len(cases)), list(cases))
    ax.locator_params("x", nbins=5)
    ax.set(xlim=(0, 1.12 * longest), ylim=(len(cases) - 0.5, -0.5), xlabel=_("GB on each rank"))
    ax.grid(axis="y", visible=False)
    fig.legend(loc="upper center", ncols=4, fontsize=9.5)
    totals = _("; ").join(
        f"{name} {amount(sum(parts.values()) / 1e9, 'GB')}" for name, parts in cases.items()
    )
    return fig, _("Bytes on each rank, beside a card of {card:g} GB: {told}.").format(
        card=card / 1e9, told=totals
    )


def fsdp_step(layers: int = 4, gather: float = 1.0, compute: float = 1.5) -> tuple[Figure, str]:
    """Return a figure of an FSDP step, with and without resharding after forward, and its alternative text.

    The arguments are those of `timeline.step`.
    """
    fig, axes = plt.subplots(2, 1, figsize=(8.8, 5.2))
    fig.subplots_adjust(left=0.14, right=0.98, top=0.86, bottom=0.1, hspace=0.28)
    steps = [timeline.step(layers, gather, compute, reshard) for reshard in (True, False)]
    most = max(step.peak for step in steps)
    for ax, step, reshard in zip(axes, steps, (True, False), strict=True):
        _draw_step(ax, step, most)
        ax.set_title(f"reshard_after_forward={reshard}", fontsize=10.5, loc="left")
        ax.set_xlim(0, 1.02 * max(step.seconds for step in steps))
    axes[0].set_xticks([])  # ticks take half of the time to draw
    axes[1].locator_params("x", nbins=4)
    axes[1].set_xlabel(
        _("time (modelled; a layer's forward takes {compute:g}, gathering it {gather:g})").format(
            compute=compute, gather=gather
        )
    )
    boxes = [
        Rectangle((0, 0), 1, 1, facecolor=colour, hatch=hatch, edgecolor="white")
        for colour, hatch in _LOOKS.values()
    ]
    fig.legend(boxes, list(_LOOKS), loc="upper center", ncols=4, fontsize=9.5)
    peak_texts = [_("{peak} layers or gradients whole at most").format(peak=step.peak) for step in steps]
    return (
        fig,
        _(
            "A step of FSDP with {layers} layers, network and compute side by side, and beneath how many "
            "layers are whole (modelled). Freed after forward: {freed_peak}, done after {freed_seconds:g}. "
            "Kept: {kept_peak}, done after {kept_seconds:g}."
        ).format(
            layers=layers,
            freed_peak=peak_texts[0],
            freed_seconds=steps[0].seconds,
            kept_peak=peak_texts[1],
            kept_seconds=steps[1].seconds,
        ),
    )


def _draw_step(ax: Axes, step: timeline.Timeline, most: int) -> None:
    """Draw one step: network, compute, and the number of whole layers; ``most`` of them fill the height."""
    for what, (colour, hatch) in _LOOKS.items():
        corners = []
        for bar in (bar for bar in step.bars if bar.what == what):
            row = (timeline.NETWORK, timeline.COMPUTE).index(bar.lane)
            low, high = row - 0.4, row + 0.4
            corners.append([(x, y) for x in (bar.start, bar.end) for y in (low, high)])
            _draw_label(ax, (bar.start + bar.end) / 2, row, str(bar.layer))
        bars = Path.make_compound_path_from_polys(np.array(corners)[:, [0, 1, 3, 2]])
        look = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.8}
        ax.add_artist(PathPatch(bars, **look))  # all in one: each hatch takes its time
    moments, counts = zip(*step.whole, (step.seconds, 0), strict=True)
    tops = [3 - 1.4 * count / most for count in counts]
    ax.fill_between(moments, tops, 3, step="post", facecolor=GREEN, alpha=0.5, linewidth=0)
    top = next(moment for moment, count in step.whole if count == step.peak)
    ax.text(top, 2.95, _(" {peak} at most").format(peak=step.peak), fontsize=8.5)
    ax.set_yticks((0, 1, 2.5), (_("network"), "compute", _("whole")))
    ax.set(ylim=(3.05, -0.5))
    ax.grid(visible=False)


def _draw_label(ax: Axes, x: float, y: float, text: str, size: float = 8.5) -> None:
    """Draw a text on a light background, centred."""
    box = {"facecolor": "#fdfdfb", "edgecolor": "none", "alpha": 0.85, "pad": 1.0}
    ax.text(x, y, text, ha="center", va="center", fontsize=size, bbox=box)


def mesh(dimensions: Mapping[str, int], doing: Mapping[str, str]) -> None:
    """Draw a two-dimensional device mesh: its ranks, and the use of each dimension.

    ``dimensions`` has the sizes of two named dimensions, rows first; ``doing`` has, for the same names, a
    text that says what the ranks along that dimension do.
    """
    (down, rows), (across, columns) = dimensions.items()
    fig, ax = plt.subplots(figsize=(8.8, 0.8 * rows + 1.5), layout="constrained")
    for row in range(rows):
        place = (-0.46, row - 0.36)
        ax.add_patch(Rectangle(place, columns - 0.08, 0.72, facecolor=COLOURS[5], alpha=0.3))
        for column in range(columns):
            place = (column - 0.36, row - 0.24)
            ax.add_patch(Rectangle(place, 0.72, 0.48, facecolor=BLUE, edgecolor="white"))
            name = f"rank {row * columns + column}"
            ax.text(column, row, name, color="white", ha="center", va="center")
    arrow = {"arrowstyle": "<->", "linewidth": 1.6}
    ends = (-0.46, -0.62), (columns - 0.54, -0.62)
    ax.annotate("", *ends, arrowprops={**arrow, "color": "#333333"})
    words = f"{across} ({columns}): {doing[across]}"
    ax.text((columns - 1) / 2, -0.7, words, ha="center", va="bottom")
    ends = (-0.72, -0.36), (-0.72, rows - 0.64)
    ax.annotate("", *ends, arrowprops={**arrow, "color": ORANGE})
    words = f"{down} ({rows}){_(': ').rstrip()}\n{doing[down]}"
    ax.text(-0.82, (rows - 1) / 2, words, ha="right", va="center", color="#a34400")
    ax.set(xlim=(-0.6 * columns, columns - 0.45), ylim=(rows - 0.55, -1.05))
    ax.set_axis_off()
    present(
        fig,
        _(
            "A mesh of {rows} × {columns} ranks. Along {across}, the rows: {rows_do}. "
            "Along {down}, the columns: {columns_do}."
        ).format(
            rows=rows,
            columns=columns,
            across=across,
            rows_do=doing[across],
            down=down,
            columns_do=doing[down],
        ),
    )


def pipeline(run: Run) -> None:
    """Draw what each stage of a pipeline computes when, from a run of the simulated cluster.

    Names of computations must be F (forward) or B (backward) and the micro-batch's number, such as ``"F0"``.
    """
    stages = len(run.results)
    fig, ax = plt.subplots(figsize=(8.8, 0.5 * stages + 1.3), layout="constrained")
    busy = [0.0] * stages
    for span in run.spans:
        if span.kind == "compute":
            colour, hatch = (BLUE, "") if span.name.startswith("F") else (ORANGE, "////")
            width = 1e3 * (span.end - span.start)
            look = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.8}
            ax.add_patch(Rectangle((1e3 * span.start, span.rank - 0.4), width, 0.8, **look))
            number = span.name[1:]
            if width > 7 * len(number) * run.seconds:  # else it would run into the next one's
                size = 8.5 if width > 11 * len(number) * run.seconds else 6.5
                _draw_label(ax, 500 * (span.start + span.end), span.rank, number, size)
            busy[span.rank] += span.end - span.start
    ax.set_yticks(range(stages), [_("stage {n}").format(n=n) for n in range(stages)])
    ax.set(xlim=(0, 1e3 * run.seconds), ylim=(stages - 0.5, -0.5), xlabel=_("ms (modelled)"))
    ax.grid(axis="y", visible=False)
    boxes = [
        Rectangle((0, 0), 1, 1, facecolor=BLUE),
        Rectangle((0, 0), 1, 1, facecolor=ORANGE, hatch="////", edgecolor="white"),
    ]
    fig.legend(boxes, ["forward", "backward"], loc="outside upper center", ncols=2, fontsize=9.5)
    idle = 1 - sum(busy) / (stages * run.seconds)
    present(
        fig,
        _(
            "A pipeline of {stages} stages: micro-batches go forward through the stages and back, in "
            "{seconds:.3g} ms; each stage is idle for {idle:.0%} of it (modelled)."
        ).format(stages=stages, seconds=1e3 * run.seconds, idle=idle),
    )


def scaling(counts: Sequence[int], efficiency: Mapping[str, Sequence[float]]) -> None:
    """Draw the modelled efficiency, in percent, by the number of GPUs: a curve for each kind of network."""
    curves(
        {name: (counts, shares) for name, shares in efficiency.items()},
        xlabel=_("GPUs, 8 per machine"),
        ylabel=_("efficiency, %"),
        alt=_("Efficiency stays above 90 % up to 8 GPUs; with one network card it falls below 30 % at 16."),
        kinds=dict.fromkeys(efficiency, "modelled"),
        log="x",
        xticks=counts,
    )


def causal(ways: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Draw which rank computes which part of causal attention, for several ways to distribute the text.

    ``ways`` has for each name, for each rank, the numbers (from 0) of the pieces of the text whose queries it
    has.
    """
    fig, axes = plt.subplots(1, len(ways), figsize=(8.8, 3.6), layout="constrained", squeeze=False)
    share_texts = []
    for ax, (name, ranks) in zip(axes[0], ways.items(), strict=True):
        total = sum(row + 0.5 for pieces in ranks for row in pieces)
        shares = []
        for rank, pieces in enumerate(ranks):
            look = {"facecolor": COLOURS[rank % 7], "edgecolor": "white", "linewidth": 0.8}
            look["hatch"] = ("", "////", "....", "xxxx")[rank % 4]
            for row in pieces:
                corners = [(0, row), (row, row), (row + 1, row + 1), (0, row + 1)]
                label = f"rank {rank}" if row == pieces[0] else None
                ax.add_patch(plt.Polygon(corners, label=label, **look))
            shares.append(sum(row + 0.5 for row in pieces) / total)
        size = max(row for pieces in ranks for row in pieces) + 1
        ax.set(xlim=(0, size), ylim=(size, 0), xlabel=_("keys: pieces of the text"), aspect="equal")
        ax.set(title=name, ylabel=_("queries"))
        percentages = ", ".join(f"{share:.0%}" for share in shares)
        share_texts.append(_("{name}: the ranks have {said} of the work").format(name=name, said=percentages))
    handles = axes[0][0].get_legend_handles_labels()
    fig.legend(*handles, loc="outside upper center", ncols=len(ranks), fontsize=9.5)
    present(
        fig,
        _("Causal attention as a triangle, coloured by rank. {told}.").format(told="; ".join(share_texts)),
    )
