"""Drawings of lesson 03: the digits, and loading times."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import torch

from course_language import _
from course_utils.plots import BLUE, ORANGE, log_ticks, present
from course_utils.timing import Measurement, seconds

_LOOKS = {
    "measured": {"marker": "o", "color": BLUE},
    "modelled": {"marker": "D", "color": ORANGE},
}


def loading_times(measurements: Sequence[Measurement]) -> None:
    """Draw measured and modelled times as dots with quartiles; logarithmic if they differ tenfold.

    Parameters
    ----------
    measurements
        One for each row, from top to bottom.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.65 * len(measurements) + 1), layout="constrained")
    names = [
        _("{label}\n({kind} on {device})").format(label=m.label, kind=_(m.kind), device=m.device)
        for m in measurements
    ]
    for i, m in enumerate(measurements):
        style = _LOOKS["modelled" if m.kind == "modelled" else "measured"]
        spread = [[1e3 * (m.median - m.q1)], [1e3 * (m.q3 - m.median)]]
        ax.errorbar(1e3 * m.median, i, xerr=spread, markersize=9, capsize=3, **style)
        ax.text(1e3 * m.q3, i, f"   {seconds(m.median)}", va="center")
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(-0.5, len(names) - 0.5)
    shortest, longest = min(1e3 * m.q1 for m in measurements), max(1e3 * m.q3 for m in measurements)
    medians, scale = [m.median for m in measurements], ""
    if max(medians) > 10 * min(medians):
        scale = _("logarithmic scale, ")
        ax.set(xscale="log", xlim=(shortest / 4, longest * (longest / shortest) ** 0.25))
        log_ticks(ax.xaxis)
    else:
        ax.set_xlim(0, 1.25 * longest)
    ax.set_xlabel(_("time, ms ({scale}median and quartiles)").format(scale=scale))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    each = ", ".join(
        _("{label} {median} ({kind})").format(label=m.label, median=seconds(m.median), kind=_(m.kind))
        for m in measurements
    )
    present(fig, _("Times as dots: {each}.").format(each=each))


def first_digits(images: torch.Tensor, labels: torch.Tensor) -> None:
    """Draw the first sixteen images, each below its label.

    Parameters
    ----------
    images, labels
        Shapes (n, 28, 28) and (n,), on the CPU.
    """
    fig, axes = plt.subplots(2, 8, figsize=(8, 2.4), layout="constrained")
    for ax, image, label in zip(axes.flat, images, labels.tolist(), strict=False):
        ax.imshow(image.numpy(), cmap="gray_r")
        ax.set_title(str(label), loc="center")
        ax.set_axis_off()
    present(fig, _("Sixteen handwritten digits, each with its label."))
