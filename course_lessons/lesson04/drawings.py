"""Drawings of lesson 04: number formats, gradients and the loss scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.patches import Rectangle

from course_utils.plots import BLUE, COLOURS, GREEN, MARKERS, ORANGE, present

_FORMATS = {
    # name: bits of the exponent, bits of the mantissa, largest exponent
    "float32": (8, 23, 127),
    "TF32": (8, 10, 127),
    "bfloat16": (8, 7, 127),
    "float16": (5, 10, 15),
}


def number_formats() -> None:
    """Draw the bits of four number formats, and how far each reaches."""
    fig, (bits, reach) = plt.subplots(
        1, 2, figsize=(9.2, 3.0), layout="constrained", width_ratios=(1, 1.15), sharey=True
    )
    parts = ((ORANGE, "sign"), (BLUE, "exponent: how far"), (GREEN, "mantissa: how fine"))
    for row, (name, (exponent, mantissa, top)) in enumerate(_FORMATS.items()):
        y, x = -row, 0
        for (colour, _), count in zip(parts, (1, exponent, mantissa), strict=True):
            for _ in range(count):
                box = Rectangle((x + 0.06, y - 0.3), 0.88, 0.6, facecolor=colour, alpha=0.85)
                bits.add_patch(box)
                x += 1
        bits.text(x + 0.4, y, f"1 + {exponent} + {mantissa}", va="center", fontsize=9)
        bits.text(-0.5, y, name, ha="right", va="center")
        lowest = (1 - top) * math.log10(2)  # of the normal numbers
        least = lowest - mantissa * math.log10(2)
        highest = (top + 1) * math.log10(2)
        look = {"height": 0.5, "color": COLOURS[row]}
        reach.barh(y, lowest - least, left=least, alpha=0.35, **look)
        reach.barh(y, highest - lowest, left=lowest, alpha=0.9, **look)
    for i, (colour, words) in enumerate(parts):
        bits.text((-5.5, 0.5, 17)[i], 0.75, words, color=colour, fontsize=9.5, weight="bold")
    bits.set(xlim=(-6, 39), ylim=(-3.6, 1.2))
    bits.set_axis_off()
    reach.set_xticks(range(-40, 41, 20), [f"$10^{{{power}}}$" for power in range(-40, 41, 20)])
    reach.set(xlabel="size of a number; pale: subnormal, with ever fewer digits")
    reach.grid(axis="y", visible=False)
    reach.tick_params(axis="y", left=False, labelleft=False)
    present(
        fig,
        "Bits of sign, exponent and mantissa: float32 1 + 8 + 23, TF32 1 + 8 + 10, bfloat16 1 + 8 + 7, "
        "float16 1 + 5 + 10. The first three reach from about 10⁻³⁸ to 10³⁸, float16 only from 6 × 10⁻⁸ "
        "to 65504.",
    )


def gradient_sizes(gradients: Mapping[str, torch.Tensor]) -> None:
    """Draw how large gradients are, one histogram above the other, with what float16 can hold.

    Parameters
    ----------
    gradients
        For each name a tensor of gradients; zeros are left out.
    """
    names = list(gradients)
    fig, axes = plt.subplots(
        len(names), 1, figsize=(7.6, 1.9 * len(names) + 0.6), layout="constrained", sharex=True
    )
    limits = torch.finfo(torch.float16)
    least, normal, largest = -24, int(math.log2(limits.tiny)), math.log2(limits.max)
    sizes = {
        name: g[g != 0].abs().double().log2().clamp(-60, 40).numpy(force=True)
        for name, g in gradients.items()
    }
    low = min(least - 7, *(float(values.min()) for values in sizes.values()))
    high = max(largest + 3, *(float(values.max()) for values in sizes.values()))
    for ax, name in zip(np.atleast_1d(axes), names, strict=True):
        ax.axvspan(low - 1, least - 1, color=ORANGE, alpha=0.22, linewidth=0)
        ax.axvspan(least - 1, normal, color=COLOURS[4], alpha=0.15, linewidth=0)
        ax.axvspan(normal, largest, color=GREEN, alpha=0.15, linewidth=0)
        ax.axvspan(largest, high + 1, color=ORANGE, alpha=0.22, linewidth=0)
        bins = np.arange(math.floor(low), math.ceil(high) + 1)
        ax.hist(sizes[name], bins=bins, weights=np.full(len(sizes[name]), 100 / len(sizes[name])))
        lost = (sizes[name] < least - 1).mean()
        ax.set(ylabel="share, %", xlim=(low - 1, high + 1))
        ax.set_title(f"{name}: {lost:.0%} too small for float16", fontsize=10.5)
    first = np.atleast_1d(axes)[0]
    top = 0.93 * first.get_ylim()[1]
    for x, words in (
        ((low + least) / 2 - 1, "becomes 0"),
        ((least + normal) / 2, "coarse"),
        ((normal + largest) / 2, "float16"),
        ((largest + high) / 2 + 0.5, "inf"),
    ):
        first.text(x, top, words, ha="center", va="top", fontsize=9, color="#444444")
    np.atleast_1d(axes)[-1].set_xlabel("size of a gradient, as a power of two")
    shares = "; ".join(f"{n}: {(sizes[n] < least - 1).mean():.0%}" for n in names)
    present(fig, f"Histograms of gradient sizes. Share too small for float16: {shares}.")


def loss_scale(scales: Sequence[float], skipped: Sequence[bool]) -> None:
    """Draw a gradient scaler's scale over the steps, and the steps it skipped.

    Parameters
    ----------
    scales
        The scale that each step was made with.
    skipped
        Whether the step was skipped.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    steps = range(1, len(scales) + 1)
    ax.step(steps, scales, where="mid", color=BLUE, label="scale")
    bad = [(i, scale) for i, scale, skip in zip(steps, scales, skipped, strict=True) if skip]
    if bad:
        ax.plot(*zip(*bad, strict=True), "X", color=ORANGE, markersize=8, label="step skipped")
    ax.set_yscale("log", base=2)
    ax.set(xlabel="step", ylabel="scale")
    ax.legend()
    present(
        fig,
        f"The scale over {len(scales)} steps: it halves at each of the {len(bad)} skipped steps, most "
        "of them at the start, and later doubles now and then.",
    )


def scores(groups: Mapping[str, Sequence[float]], xlabel: str) -> None:
    """Draw one dot a run, a row a group, with a bar at the mean; each run has its own height.

    Parameters
    ----------
    groups
        For each name its values, in %.
    xlabel
        What they are.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.6 * len(groups) + 1.0), layout="constrained")
    for row, values in enumerate(groups.values()):
        mean = statistics.fmean(values)
        ax.plot([mean, mean], [row - 0.28, row + 0.28], color="#444444", linewidth=2)
        heights = [row + 0.4 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        ax.plot(values, heights, MARKERS[row], color=COLOURS[row], alpha=0.75)
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set(xlabel=xlabel, ylim=(len(groups) - 0.5, -0.5))
    said = "; ".join(
        f"{name} {min(v):.1f} to {max(v):.1f}, mean {statistics.fmean(v):.1f}"
        for name, v in groups.items()
    )
    present(fig, f"One dot a run, with the mean as a bar. {said}.")
