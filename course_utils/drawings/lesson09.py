"""Drawings of lesson 09: the ladder, the runs to a target, and the report card."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from ..plots import log_ticks, present
from .core import BLUE, GREEN, ORANGE


class Height(NamedTuple):
    """A rung as it is drawn.

    ``reached`` is its images a second, lower quartile, median and upper quartile, or None where it was
    not measured; ``guess`` is what the learner's prediction would have come to.
    """

    name: str
    reached: tuple[float, ...] | None
    kept: bool
    guess: float | None = None


def ladder(heights: Sequence[Height], limit: float | None = None) -> None:
    """Draw a ladder from bottom to top: images a second, rung by rung.

    Parameters
    ----------
    heights
        The rungs, the first loop first.
    limit
        The images a second that nothing on the device can exceed, if known.
    """
    fig, ax = plt.subplots(figsize=(8.2, 0.36 * len(heights) + 1.5), layout="constrained")
    _rungs(ax, heights, limit)
    fig.legend(loc="outside upper center", ncols=4, fontsize=9)
    present(fig, f"The ladder, from the bottom up. {_said(heights, limit)}")


def report_card(
    heights: Sequence[Height], title: str, results: Mapping[str, str], path: Path
) -> None:
    """Draw the ladder with all results below it, show it and save it as a picture.

    Parameters
    ----------
    heights
        The rungs, the first loop first.
    title
        Machine, version and date.
    results
        For each name the figure in words.
    path
        The PNG file to write.
    """
    tall = 0.3 * len(heights) + 1.2, 0.24 * len(results) + 0.2
    fig, (ax, below) = plt.subplots(
        2, 1, figsize=(8.2, sum(tall) + 0.6), layout="constrained", height_ratios=tall
    )
    _rungs(ax, heights, None)
    fig.suptitle(textwrap.fill(f"Capstone: {title}", 90), fontsize=10)
    ax.legend(loc="lower right", fontsize=8.5)
    below.axis("off")
    for row, (name, value) in enumerate(results.items()):
        y = 1 - (row + 0.5) / len(results)
        below.text(0.0, y, name, va="center", fontsize=9.5)
        below.text(0.36, y, value, va="center", fontsize=9.5, weight="bold")
    fig.savefig(path, dpi=150)
    each = "; ".join(f"{name}: {value}" for name, value in results.items())
    present(fig, f"Report card of {title}. {_said(heights, None)} {each}.")


def _rungs(ax: Axes, heights: Sequence[Height], limit: float | None) -> None:
    labels: set[str] = set()

    def once(label: str) -> str:
        new = label not in labels
        labels.add(label)
        return label if new else ""

    stands = heights[0].reached[1] if heights[0].reached else 1.0
    for y, rung in enumerate(heights):
        if rung.reached is None:
            place = ax.get_yaxis_transform()
            ax.text(0.01, y, "not measured here", transform=place, va="center", color="#666666")
            continue
        low, middle, high = rung.reached
        ax.plot([stands, middle], [y, y], color="#bbbbbb", linewidth=3, zorder=1)
        ax.errorbar(
            middle,
            y,
            xerr=[[middle - low], [high - middle]],
            fmt="o",
            color=BLUE if rung.kept else ORANGE,
            markerfacecolor=BLUE if rung.kept else "white",
            capsize=4,
            markersize=8,
            label=once("kept" if rung.kept else "left out"),
        )
        if rung.guess:
            ax.plot(rung.guess, y, "|", color=GREEN, markersize=14, label=once("predicted"))
        if rung.kept:
            stands = middle
    if limit:
        ax.axvline(limit, color="black", linestyle=":", label="limit")
    ax.set_xscale("log")
    ax.set_yticks(range(len(heights)), [rung.name for rung in heights])
    ax.set(ylim=(-0.6, len(heights) - 0.4), xlabel="images/s (measured: median and quartiles)")
    ax.grid(axis="y", visible=False)
    log_ticks(ax.xaxis)


def _said(heights: Sequence[Height], limit: float | None) -> str:
    words = [
        f"{r.name}: {r.reached[1]:,.0f} images/s, {'kept' if r.kept else 'left out'}"
        if r.reached
        else f"{r.name}: not measured"
        for r in heights
    ]
    end = f" The floor allows {limit:,.0f} images/s." if limit else ""
    return "; ".join(words) + "." + end


def runs(
    times: Sequence[float], scores: Sequence[float], target: float, old: tuple[float, float]
) -> None:
    """Draw runs of a training as dots, time against accuracy, with the target as a line.

    Parameters
    ----------
    times, scores
        Seconds and accuracy of each run.
    target
        The accuracy to reach.
    old
        Seconds and accuracy of one run of the first loop.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    ax.plot(
        times, [100 * s for s in scores], "o", color=BLUE, label=f"best loop, {len(times)} seeds"
    )
    ax.plot(old[0], 100 * old[1], "s", color=ORANGE, label="first loop, one epoch, one seed")
    ax.axhline(100 * target, color="#666666", linewidth=1, label="target")
    ax.set(xscale="log", xlabel="training time, s (measured)", ylabel="held-out accuracy, %")
    log_ticks(ax.xaxis)
    ax.legend(loc="best", fontsize=9)
    got = sum(score >= target for score in scores)
    present(
        fig,
        f"{got} of {len(scores)} runs reach {target:.0%}, in {min(times):.2g} to {max(times):.2g} s; the "
        f"first loop has {old[1]:.1%} after {old[0]:.3g} s.",
    )


def crops(images: torch.Tensor, cut: torch.Tensor) -> None:
    """Draw images (n, 3, h, w) of bytes above what random cropping made of them."""
    fig, axes = plt.subplots(2, len(images), figsize=(8, 2.3), layout="constrained")
    for column, pair in enumerate(zip(images, cut, strict=True)):
        for ax, image in zip(axes[:, column], pair, strict=True):
            ax.imshow(image.permute(1, 2, 0).cpu().numpy())
            ax.set(xticks=[], yticks=[])
            ax.grid(visible=False)
    axes[0, 0].set_ylabel("stored")
    axes[1, 0].set_ylabel("cropped")
    present(fig, f"{len(images)} images, and below each its random crop, each moved differently.")
