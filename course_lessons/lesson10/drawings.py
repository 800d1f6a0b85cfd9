"""Drawings of lesson 10: the ladder, runs to a target accuracy, and the report card."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from course_language import N_, _
from course_utils.plots import BLUE, GREEN, ORANGE, log_ticks, present

COUNTED = (N_("images"), N_("letters"))
"""The units that a ladder counts per second."""


class Height(NamedTuple):
    """A rung as it is drawn.

    ``reached`` is its rate in images per second: lower quartile, median and upper quartile, or None if it was
    not measured. ``factor`` is its speed-up over the kept loop below. ``guess`` is the rate by the learner's
    prediction.
    """

    name: str
    reached: tuple[float, ...] | None
    kept: bool
    factor: float | None = None
    guess: float | None = None


def ladder(heights: Sequence[Height], limit: float | None = None, unit: str = COUNTED[0]) -> None:
    """Draw a ladder from bottom to top: images per second, rung by rung.

    Parameters
    ----------
    heights
        The rungs, the first loop first.
    limit
        The upper limit of images per second, or the letters per second at an MFU of 100 %, if known.
    unit
        The unit that is counted: one of `COUNTED`.
    """
    fig, ax = plt.subplots(figsize=(8.2, 0.33 * len(heights) + 1.5), layout="constrained")
    _draw_rungs(ax, heights, limit, unit)
    fig.legend(loc="outside upper center", ncols=5, fontsize=9)
    present(
        fig,
        _("The ladder, from the bottom up. {summary}").format(summary=_summary(heights, limit, unit)),
    )


def report_card(
    heights: Sequence[Height],
    title: str,
    results: Mapping[str, str],
    headlines: Sequence[str],
    path: Path,
    unit: str = COUNTED[0],
) -> None:
    """Draw some results in large print, the ladder, and the other results below; save and display the figure.

    Parameters
    ----------
    heights
        The rungs, the first loop first.
    title
        The title: machine, version and date.
    results
        The results as text, by name.
    headlines
        The names of the results in large print.
    path
        The PNG file to write.
    unit
        The unit that is counted: one of `COUNTED`.
    """
    large = [name for name in headlines if name in results]
    small = [name for name in results if name not in large]
    tall = (1.1 if large else 0.1, 0.3 * len(heights) + 0.9, 0.25 * len(small) + 0.3)
    fig, (top, ax, below) = plt.subplots(
        3, 1, figsize=(8.2, sum(tall) + 0.9), layout="constrained", height_ratios=tall
    )
    fig.suptitle(textwrap.fill(_("Capstone · {title}").format(title=title), 90), fontsize=10.5)
    for column, name in enumerate(large):
        x = (column + 0.5) / len(large)
        figure = re.split(r" ?[(（]", results[name])[0]
        top.text(x, 0.65, figure, ha="center", va="center", fontsize=25, weight="bold", color=BLUE)
        caption = textwrap.fill(name, 84 // len(large))
        top.text(x, 0.32, caption, ha="center", va="top", fontsize=9.5)
    _draw_rungs(ax, heights, None, unit)
    ax.legend(loc="lower right", fontsize=8.5, frameon=True, facecolor="#fdfdfb", framealpha=1)
    for row, name in enumerate(small):
        y = 1 - (row + 0.5) / len(small)
        below.text(0.33, y, name, ha="right", va="center", fontsize=9.5)
        below.text(0.35, y, results[name], va="center", fontsize=9.5, weight="bold")
    for empty in (top, below):
        empty.axis("off")
    fig.savefig(path, dpi=150)
    each = _("; ").join(f"{name}{_(': ')}{value}" for name, value in results.items())
    present(
        fig,
        _("Report card of {title}. {summary} {each}.").format(
            title=title, summary=_summary(heights, None, unit), each=each
        ),
    )


def _draw_rungs(ax: Axes, heights: Sequence[Height], limit: float | None, unit: str) -> None:
    """Draw the measured rungs on an axis."""
    labels: set[str] = set()

    def once(label: str) -> str:
        """Return a label at its first use, then ``""``, so that the legend has it once."""
        new = label not in labels
        labels.add(label)
        return label if new else ""

    measured = [rung for rung in heights if rung.reached]
    stands = measured[0].reached[1] if measured else 1.0
    for y, rung in enumerate(measured):
        low, middle, high = rung.reached
        grey = once(_("from the best loop before")) if y else ""
        ax.plot([stands, middle], [y, y], color="#bbbbbb", linewidth=3, zorder=1, label=grey)
        ax.errorbar(
            middle,
            y,
            xerr=[[middle - low], [high - middle]],
            fmt="o",
            color=BLUE if rung.kept else ORANGE,
            markerfacecolor=BLUE if rung.kept else "white",
            capsize=4,
            markersize=8,
            label=once(_("kept") if rung.kept else _("left out")),
        )
        if rung.guess:
            ax.plot(rung.guess, y, "|", color=GREEN, markersize=14, label=once(_("predicted")))
        if rung.factor:
            place = ax.get_yaxis_transform()
            ax.text(1.01, y, f"{rung.factor:.2f}×", transform=place, va="center", fontsize=9.5)
        if rung.kept:
            stands = middle
    if limit:
        allowed = _("the floor allows") if unit == COUNTED[0] else _("MFU of 100 %")
        ax.axvline(limit, color="black", linestyle=":", label=allowed)
    ax.set_xscale("log")
    ax.set_yticks(range(len(measured)), [rung.name for rung in measured])
    ax.set(ylim=(-0.6, len(measured) - 0.4), xlabel=_axis_label(heights, unit))
    ax.grid(axis="y", visible=False)
    log_ticks(ax.xaxis)


def _axis_label(heights: Sequence[Height], unit: str) -> str:
    """Return the label of the x axis, with the names of rungs that were not measured."""
    missing = _(", ").join(rung.name for rung in heights if not rung.reached)
    label = _("{unit}/s (measured: median and quartiles)").format(unit=_(unit))
    return (
        _("{label}\nnot measured here: {missing}").format(label=label, missing=missing) if missing else label
    )


def _summary(heights: Sequence[Height], limit: float | None, unit: str) -> str:
    """Describe a ladder for the alternative text."""
    words = [
        f"{r.name}: {r.reached[1]:,.0f} {_(unit)}/s, {_('kept') if r.kept else _('left out')}"
        if r.reached
        else _("{r}: not measured").format(r=r.name)
        for r in heights
    ]
    end = ""
    if limit:
        end = _(" The floor allows {limit:,.0f} {unit}/s.").format(limit=limit, unit=_(unit))
        if unit != COUNTED[0]:
            end = _(" An MFU of 100 % is {limit:,.0f} {unit}/s.").format(limit=limit, unit=_(unit))
    return "; ".join(words) + "." + end


Run = Sequence[tuple[float, float]]
"""The evaluations of a training: pairs of seconds so far and accuracy (0 to 1)."""


def runs(best: Sequence[Run], first: Run, target: float) -> None:
    """Draw accuracy against time for runs of two loops, with the target as a line.

    Parameters
    ----------
    best
        The runs with the recipe, one for each seed.
    first
        One run of the first loop.
    target
        The accuracy to reach.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    for number, run in enumerate(best):
        _draw_run(
            ax,
            run,
            "o",
            BLUE,
            "" if number else _("with the recipe, {n_best} seeds").format(n_best=len(best)),
        )
    _draw_run(ax, first, "s", ORANGE, _("first loop, one seed, after each epoch"))
    ax.axhline(100 * target, color="#666666", linewidth=1, linestyle="--", label=_("target"))
    ax.set(xscale="log", xlabel=_("training time, s (measured)"), ylabel=_("held-out accuracy, %"))
    log_ticks(ax.xaxis)
    ax.legend(loc="best", fontsize=9)
    got = sum(any(score >= target for _, score in run) for run in best)
    ends = [run[-1][0] for run in best]
    seconds, score = first[-1]
    present(
        fig,
        _(
            "{got} of {n_best} runs reach {target:.0%}, in {min_ends:.2g} to {max_ends:.2g} s; the "
            "first loop has {score:.1%} after {seconds:.3g} s."
        ).format(
            got=got,
            n_best=len(best),
            target=target,
            min_ends=min(ends),
            max_ends=max(ends),
            score=score,
            seconds=seconds,
        ),
    )


def _draw_run(ax: Axes, run: Run, marker: str, colour: str, label: str) -> None:
    """Draw one run."""
    times, scores = zip(*run, strict=True)
    ax.plot(times, [100 * s for s in scores], marker, ls="-", color=colour, label=label)


def crops(images: torch.Tensor, cut: torch.Tensor) -> None:
    """Draw images, uint8 of shape (n, 3, h, w), and below each its random crop."""
    fig, axes = plt.subplots(2, len(images), figsize=(8, 2.3), layout="constrained")
    for column, pair in enumerate(zip(images, cut, strict=True)):
        for ax, image in zip(axes[:, column], pair, strict=True):
            ax.imshow(image.permute(1, 2, 0).cpu().numpy())
            ax.set(xticks=[], yticks=[])
            ax.grid(visible=False)
    axes[0, 0].set_ylabel(_("stored"))
    axes[1, 0].set_ylabel(_("cropped"))
    present(
        fig,
        _("{n_images} images, and below each its random crop, each moved differently.").format(
            n_images=len(images)
        ),
    )
