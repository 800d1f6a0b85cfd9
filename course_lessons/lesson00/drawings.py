"""Drawings of lesson 00: digits and answers, timelines, and what a GPU's result requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, Patch, Polygon, Rectangle

from course_language import N_, _
from course_lessons.lesson00.watching import Watched
from course_lessons.shared.traces import Trace
from course_utils.plots import BLUE, GREEN, ORANGE, curves, present
from course_utils.timing import Measurement, seconds


def answers(images: torch.Tensor, labels: torch.Tensor, given: torch.Tensor) -> None:
    """Draw sixteen digits, each below what a network says that it is; four of them are wrong, if there are.

    Parameters
    ----------
    images, labels, given
        Shapes (n, 28, 28), (n,) and (n,).
    """
    images, labels, given = images.cpu(), labels.cpu(), given.cpu()
    right, wrong = ((given == labels) == answer for answer in (True, False))
    wrong_ones = wrong.nonzero().flatten()[:4]
    chosen = torch.cat([right.nonzero().flatten()[: 16 - len(wrong_ones)], wrong_ones]).tolist()
    fig, axes = plt.subplots(2, 8, figsize=(8, 2.6), layout="constrained")
    for ax in axes.flat:
        ax.set_axis_off()
    for ax, i in zip(axes.flat, chosen, strict=False):
        ax.imshow(images[i].numpy(), cmap="gray_r")
        said, true = int(given[i]), int(labels[i])
        title = str(said) if said == true else _("{said},\nbut it is {true}").format(said=said, true=true)
        ax.set_title(title, loc="center", color="#222222" if said == true else ORANGE, fontsize=10.5)
    mistakes = len(wrong_ones)
    text = _("Sixteen test digits with the network's answers, {mistakes} of them wrong.")
    present(fig, text.format(mistakes=mistakes))


_LOOKS = {
    "work": (N_("loads a batch"), GREEN, "...."),
    "launch": (N_("sends work to the GPU"), "#56B4E9", ""),
    "operation": (N_("sends work to the GPU"), "#56B4E9", ""),
    "wait": (N_("waits"), "#c8c8c4", ""),
    "copy": (N_("copies"), "#E69F00", ""),
    "kernel": (N_("computes"), BLUE, ""),
}
"""For each kind of span: what is done, its colour, its hatching."""


def draw_lanes(ax: Axes, trace: Trace, until: float) -> dict[str, Patch]:
    """Draw a trace up to a time in ms, Python's lane above the GPU's; return the legend's patches."""
    legend: dict[str, Patch] = {}
    for kind, (what, colour, hatch) in _LOOKS.items():
        style = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
        for y, on_host in ((1, True), (0, False)):
            bars = [
                (1e3 * (span.start - trace.start), 1e3 * span.seconds)
                for span in trace.spans
                if span.kind == kind and (span.lane == "host") is on_host and span.lane != "phases"
            ]
            if bars:
                edges = ["white" if width > until / 150 else colour for __, width in bars]
                ax.broken_barh(bars, (y - 0.4, 0.8), **style | {"edgecolor": edges})
                legend.setdefault(what, Patch(label=_(what), **style))
    ax.set(xlim=(-0.01 * until, 1.01 * until), ylim=(-0.5, 1.5))
    ax.set_yticks((1, 0), ("Python", "GPU"))
    ax.grid(visible=False, axis="y")
    return legend


def timelines(watched: Mapping[str, Watched]) -> None:
    """Draw what Python and the GPU did, one picture below the other on the same time axis, and the times.

    Where no trace could be made, the times are drawn as bars, and a sentence says what is missing.

    Parameters
    ----------
    watched
        For each title, what `watch` returned.
    """
    times = {title: seconds(seen.seconds) for title, seen in watched.items()}
    if all(seen.trace for seen in watched.values()):
        _draw_traces(watched, times)
    else:
        _draw_bars(watched, times)
        print(
            _(
                "No timeline here, because PyTorch can't say when this device was busy. On a "
                "CPU there's nothing to see. It finishes each operation before Python goes on, so Python "
                "never waits for it."
            )
        )


def gain(before: Watched, after: Watched) -> None:
    """Draw what was seen before and after a change of a loop, and print the gain where there are traces."""
    timelines({_("before"): before, _("your loop"): after})
    if not (before.trace and after.trace):
        return  # on a CPU the two differ by chance only
    if before.kind == "modelled" and abs(after.seconds / before.seconds - 1) < 0.02:
        print(_("The same time: your loop still waits at each step. Change the line and run the cell again."))
        return
    print(
        _("before {before}, your loop {after}: {ratio:.2f} times as fast ({kind})").format(
            before=seconds(before.seconds),
            after=seconds(after.seconds),
            ratio=before.seconds / after.seconds,
            kind=_(after.kind),
        )
    )


def product_times(sizes: Sequence[int], times: Sequence[Measurement]) -> None:
    """Draw the times of matrix products against their sizes, on logarithmic axes."""
    name = _("product on {device}").format(device=times[0].device)
    curves(
        {name: (sizes, [1e3 * m.median for m in times])},
        xlabel=_("matrix size n"),
        ylabel=_("time for one product, ms"),
        log="xy",
        xticks=sizes,
        kinds={name: times[0].kind},
        alt=_("The time for one matrix product against the matrix size, both on logarithmic axes: it rises."),
    )


def _draw_traces(watched: Mapping[str, Watched], times: Mapping[str, str]) -> None:
    """Draw traces below each other, with a legend and the share of the time in which the GPU computes."""
    longest = max(1e3 * seen.trace.seconds for seen in watched.values() if seen.trace)
    fig, axes = plt.subplots(
        len(watched), figsize=(8, 1.2 + 1.35 * len(watched)), layout="constrained", sharex=True, squeeze=False
    )
    legend: dict[str, Patch] = {}
    texts = []
    for ax, (title, seen) in zip(axes.flat, watched.items(), strict=True):
        assert seen.trace
        legend |= draw_lanes(ax, seen.trace, longest)
        ax.set_title(_("{title}: {time} ({kind})").format(title=title, time=times[title], kind=_(seen.kind)))
        texts.append(
            _("{title}: {time}, the GPU computes for {busy:.0%} of it").format(
                title=title, time=times[title], busy=seen.trace.share("kernel")
            )
        )
    axes[-1, 0].set_xlabel(_("time, ms"))
    fig.legend(handles=list(legend.values()), loc="outside lower center", ncols=len(legend))
    present(fig, _("What Python and the GPU do. {texts}.").format(texts="; ".join(texts)))


def _draw_bars(watched: Mapping[str, Watched], times: Mapping[str, str]) -> None:
    """Draw a bar for each time."""
    fig, ax = plt.subplots(figsize=(7.2, 0.9 + 0.5 * len(watched)), layout="constrained")
    rows = ax.barh(list(watched), [1e3 * seen.seconds for seen in watched.values()], color=BLUE)
    ax.bar_label(rows, list(times.values()), padding=4)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(_("time, ms ({kinds})").format(kinds=", ".join({_(s.kind) for s in watched.values()})))
    each = "; ".join(f"{title} {time}" for title, time in times.items())
    present(fig, _("Times as bars: {each}.").format(each=each))


def five_doors(report: Any) -> None:
    """Draw the five requirements ("doors") of a `course_utils.doctor` report, and how far an arrow gets.

    The arrow ends at the first shut door. The fifth, native bfloat16, affects only the speed of one format:
    the arrow ends before it.

    Parameters
    ----------
    report
        A report with ``doors``; each has a ``name`` and a ``state``, ``"open"``, ``"shut"`` or
        ``"unknown"``.
    """
    fig, ax = plt.subplots(figsize=(7.6, 2.7), layout="constrained")
    looks = {
        "open": (GREEN, _("open")),
        "shut": (ORANGE, _("shut")),
        "unknown": ("#888888", _("not reached")),
    }
    *path, __ = report.doors
    shut = next((i for i, d in enumerate(path) if d.state == "shut"), None)
    for i, door in enumerate(report.doors):
        x, (colour, word) = 1.6 * i + 1.3 + (1.7 if i == len(path) else 0), looks[door.state]
        if door.state == "unknown" and shut is None:
            word = _("not known")
        ax.add_patch(Rectangle((x, 0), 0.9, 1.8, facecolor="white", edgecolor="#444444"))
        if door.state == "open":
            ajar = [(x, 0), (x + 0.3, -0.18), (x + 0.3, 1.62), (x, 1.8)]
            ax.add_patch(Polygon(ajar, facecolor=colour, edgecolor="#444444"))
        else:
            hatch = "///" if door.state == "unknown" else None
            leaf = Rectangle((x, 0), 0.9, 1.8, facecolor=colour, edgecolor="#444444", hatch=hatch)
            ax.add_patch(leaf)
            ax.plot([x + 0.75], [0.85], "o", color="white")
        ax.text(
            x + 0.45,
            2.0,
            f"{i + 1}. {chr(10).join(door.name.rsplit(' ', 1))}",
            ha="center",
            va="bottom",
            fontsize=9,
        )
        ax.text(x + 0.45, -0.42, word, ha="center", va="top", fontsize=9, color="#444444")
    end = 1.6 * len(path) + 1.4 if shut is None else 1.6 * shut + 1.25
    ax.add_patch(
        FancyArrowPatch((0.9, 0.9), (end, 0.9), arrowstyle="-|>", mutation_scale=16, color="#444444")
    )
    ax.text(0.8, 0.9, _("your\ncode"), ha="right", va="center")
    ax.text(1.6 * len(path) + 1.5, 0.9, _("a GPU's\nresult"), ha="left", va="center")
    ax.text(
        1.6 * len(path) + 3.45,
        -0.85,
        _("(for speed in bfloat16)"),
        ha="center",
        va="top",
        fontsize=9,
    )
    ax.set(xlim=(0, 1.6 * len(report.doors) + 3.0), ylim=(-1.3, 2.7))
    ax.set_axis_off()
    states = ", ".join(f"{d.name} {looks[d.state][1]}" for d in report.doors)
    present(fig, _("Five doors between your code and a GPU's result: {states}.").format(states=states))
