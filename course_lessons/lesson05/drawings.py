"""Drawings of lesson 05: number formats, gradients and the loss scale."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from course_language import _
from course_utils import plots
from course_utils.devices import abilities
from course_utils.plots import BLUE, COLOURS, GREEN, MARKERS, ORANGE, present
from course_utils.timing import kind_of

_FORMATS = {
    # name: bits of the exponent, bits of the mantissa, largest exponent
    "float32": (8, 23, 127),
    "TF32": (8, 10, 127),
    "bfloat16": (8, 7, 127),
    "float16": (5, 10, 15),
}


def number_formats() -> None:
    """Draw the bits of four number formats, and the range of each."""
    fig, (bits, reach) = plt.subplots(
        1, 2, figsize=(9.2, 3.0), layout="constrained", width_ratios=(1, 1.15), sharey=True
    )
    parts = ((ORANGE, _("sign")), (BLUE, _("exponent: how far")), (GREEN, _("mantissa: how fine")))
    for row, (name, (exponent, mantissa, top)) in enumerate(_FORMATS.items()):
        y, x = -row, 0
        for (colour, __), count in zip(parts, (1, exponent, mantissa), strict=True):
            for __ in range(count):
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
    reach.set(xlabel=_("size of a number; pale: subnormal, with ever fewer digits"))
    reach.grid(axis="y", visible=False)
    reach.tick_params(axis="y", left=False, labelleft=False)
    present(
        fig,
        _(
            "Bits of sign, exponent and mantissa: float32 1 + 8 + 23, TF32 1 + 8 + 10, bfloat16 1 + 8 + 7, "
            "float16 1 + 5 + 10. The first three reach from about 10⁻³⁸ to 10³⁸, float16 only from 6 × 10⁻⁸ "
            "to 65504."
        ),
    )


def neighbours_of_one(update: float) -> None:
    """Draw the numbers that float16 and bfloat16 have from 1 on, and 1 plus an update.

    Parameters
    ----------
    update
        What is added to 1.
    """
    fig, ax = plt.subplots(figsize=(8.4, 2.1), layout="constrained")
    for row, dtype in enumerate((torch.float16, torch.bfloat16)):
        gap = torch.finfo(dtype).eps
        there = np.arange(1, 1.0083, gap)
        ax.barh(-row, gap / 2, left=1, height=0.62, color=COLOURS[4], alpha=0.35, linewidth=0)
        ax.plot(there, [-row] * len(there), "|", color=BLUE, markersize=22, markeredgewidth=2)
        ax.plot(1 + update, -row, "o", color=ORANGE, markersize=7)
    ax.annotate(
        _("1 + {update:g}").format(update=update),
        (1 + update, -0.06),
        (1 + 4 * update, 0.62),
        color=ORANGE,
        weight="bold",
        va="center",
        arrowprops={"arrowstyle": "-", "color": ORANGE},
    )
    ax.text(1.0021, -1, _("all of this is rounded to 1"), va="center", ha="center", fontsize=9.5)
    ax.set_yticks((0, -1), ("float16", "bfloat16"))
    ax.set_xticks((1, 1.002, 1.004, 1.006, 1.0078125), ("1", "1.002", "1.004", "1.006", "1.0078"))
    ax.set(xlim=(0.9996, 1.0083), ylim=(-1.45, 0.95), xlabel=_("a blue line: a number that the format has"))
    ax.grid(visible=False)
    present(
        fig,
        _(
            "The numbers from 1 to 1.0078. float16 has nine of them, bfloat16 only the first and the last. "
            "1 + {update:g} is much nearer to 1 than to the next number, so both round it to 1."
        ).format(update=update),
    )


def mixed_precision_step() -> None:
    """Draw one step with a gradient scaler: which part is in 16 bits, and where gradients are scaled."""
    fig, ax = plt.subplots(figsize=(9.6, 3.3), layout="constrained")
    full, low, skip = BLUE, ORANGE, "#777777"
    parts = {
        # name: centre, size, text, colour
        "weights": ((1.15, 3), (1.9, 1.1), _("weights\nfloat32"), full),
        "forward": ((4.1, 3), (2.3, 1.1), _("forward pass\nunder autocast"), low),
        "loss": ((6.75, 3), (1.5, 1.1), _("loss\nfloat32"), full),
        "scaled": ((9.15, 3), (1.8, 1.1), _("loss × S"), full),
        "backward": ((9.15, 1), (1.8, 1.1), _("backward"), low),
        "gradients": ((6.45, 1), (2.1, 1.1), _("gradients × S\nfloat32"), full),
        "unscaled": ((3.7, 1), (1.9, 1.1), _("÷ S\ninf or nan?"), full),
        "step": ((1.15, 1), (1.9, 1.1), _("optimiser's\nstep"), full),
    }
    for (x, y), (width, height), text, colour in parts.values():
        corner = (x - width / 2, y - height / 2)
        ax.add_patch(Rectangle(corner, width, height, facecolor=colour, alpha=0.22, edgecolor=colour))
        ax.text(x, y, text, ha="center", va="center", fontsize=10)
    names = list(parts)
    for one, other in zip(names, [*names[1:], names[0]], strict=True):
        (x, y), (width, height) = parts[one][:2]
        (to_x, to_y), (to_width, to_height) = parts[other][:2]
        side, up = (to_x > x) - (to_x < x), (to_y > y) - (to_y < y)
        side = 0 if up else side
        ends = (
            (to_x - side * to_width / 2, to_y - up * to_height / 2),
            (x + side * width / 2, y + up * height / 2),
        )
        ax.annotate("", *ends, arrowprops={"arrowstyle": "->", "linewidth": 1.6})
    ax.annotate(
        "", (3.7, -0.25), (3.7, 0.45), arrowprops={"arrowstyle": "->", "color": skip, "linewidth": 1.6}
    )
    ax.text(3.7, -0.45, _("yes: skip the step"), ha="center", va="center", color=skip)
    ax.text(2.4, 1.2, _("no"), ha="center", va="bottom", fontsize=9)
    for x, y, call in (
        (7.92, 3.75, "scaler.scale(loss)"),
        (8.35, 2, ".backward()"),
        (2.6, 1.75, "scaler.step(optimizer)"),
    ):
        ax.text(x, y, call, ha="center", va="center", family="monospace", fontsize=9)
    ax.text(1.15, 3.85, _("orange: products in 16 bits"), ha="center", color=low, fontsize=9.5, weight="bold")
    ax.set(xlim=(0, 10.2), ylim=(-0.75, 4.1))
    ax.set_axis_off()
    present(
        fig,
        _(
            "A round: float32 weights, forward pass under autocast with products in 16 bits, float32 loss, "
            "the loss times S, backward in 16 bits, float32 gradients that are S times too large. Then the "
            "scaler's step divides them by S and looks for inf or nan. If there is one, it skips the step; "
            "else the optimiser changes the weights."
        ),
    )


def share_lost(gradients: torch.Tensor, scale: float) -> tuple[float, float]:
    """Return the percentages of nonzero gradients that become 0, and infinite, in float16.

    Parameters
    ----------
    gradients
        In float32.
    scale
        The factor before the conversion.
    """
    half = (gradients[gradients != 0].double() * scale).half()
    shares = ((half == 0), half.isinf())
    return tuple(100 * share.float().mean().item() for share in shares)  # type: ignore[return-value]


def scaled_gradients(gradients: torch.Tensor, scale: float) -> tuple[Figure, str]:
    """Return a histogram of gradients times a scale, with float16's range marked, and its alternative text.

    The axis is the same for every scale, so that figures can be compared.

    Parameters
    ----------
    gradients
        In float32; zeros are left out.
    scale
        The loss scale: the factor of each gradient.
    """
    fig, ax = plt.subplots(figsize=(7.6, 2.5))
    fig.subplots_adjust(left=0.09, right=0.98, top=0.87, bottom=0.21)  # quicker than to lay it out
    limits = torch.finfo(torch.float16)
    low, high = -64, 40
    edges = (low, -25, int(math.log2(limits.tiny)), 16, high)  # below half of 2^-24 is 0
    size = (gradients[gradients != 0].abs().double() * scale).log2()
    size = size.clamp(low + 0.5, high - 0.5).numpy(force=True)
    zones = (
        (ORANGE, _("becomes 0")),
        (COLOURS[4], _("coarse")),
        (GREEN, "float16"),
        (ORANGE, "inf"),
    )
    for left, right, (colour, words) in zip(edges, edges[1:], zones, strict=False):
        ax.axvspan(left, right, color=colour, alpha=0.18, linewidth=0)
        counts, bins = np.histogram(size, np.arange(left, right + 1))
        ax.stairs(100 * counts / max(len(size), 1), bins, fill=True, color=colour)
        ax.text((left + right) / 2, 0.97, words, ha="center", va="top", fontsize=9).set_transform(
            ax.get_xaxis_transform()
        )
    lost, infinite = share_lost(gradients, scale)
    power = math.log2(scale)
    by = f"2^{power:.0f}" if power.is_integer() and abs(power) > 16 else f"{scale:g}"
    ax.set_title(
        _("loss × {by}: {lost:.0f} % lost, {infinite:.0f} % inf").format(by=by, lost=lost, infinite=infinite),
        fontsize=11,
    )
    ax.set(xlim=(low, high), ylabel=_("share, %"), xlabel=_("size of a gradient, as a power of two"))
    ax.margins(y=0.25)
    return fig, (
        _(
            "Histogram of gradient sizes, loss times {scale:g}: {lost:.0f} % become 0 in float16, "
            "{infinite:.0f} % infinite."
        ).format(scale=scale, lost=lost, infinite=infinite)
    )


def show_gradients(gradients: torch.Tensor, scale: float) -> None:
    """Display the histogram of `scaled_gradients`."""
    present(*scaled_gradients(gradients, scale))


def losses(runs: Mapping[str, Sequence[torch.Tensor]]) -> None:
    """Draw the training losses of several runs.

    Parameters
    ----------
    runs
        For each name the losses of all steps, a multiple of 10.
    """
    means = {name: torch.stack([*steps]).view(-1, 10).mean(1).tolist() for name, steps in runs.items()}
    ends = _("; ").join(f"{name} {mean[-1]:.2f}" for name, mean in means.items())
    plots.curves(
        {name: (range(10, 10 * len(mean) + 1, 10), mean) for name, mean in means.items()},
        xlabel=_("step"),
        ylabel=_("training loss, mean of 10 steps"),
        alt=_("The training loss, step by step; it ends at: {ends}.").format(ends=ends),
    )


def loss_scale(scales: Sequence[float], skipped: Sequence[bool]) -> None:
    """Draw a gradient scaler's scale against the steps, with the skipped steps marked.

    Parameters
    ----------
    scales
        The scale in each step.
    skipped
        For each step, whether it was skipped.
    """
    fig, ax = plt.subplots(figsize=(7.2, 3.2), layout="constrained")
    steps = range(1, len(scales) + 1)
    ax.step(steps, scales, where="mid", color=BLUE, label=_("scale"))
    bad = [(i, scale) for i, scale, skip in zip(steps, scales, skipped, strict=True) if skip]
    if bad:
        ax.plot(*zip(*bad, strict=True), "X", color=ORANGE, markersize=8, label=_("step skipped"))
    ax.set_yscale("log", base=2)
    ax.set(xlabel=_("step"), ylabel=_("scale"))
    ax.legend()
    present(
        fig,
        _(
            "The scale over {n_scales} steps: it halves at each of the {n_bad} skipped steps, most "
            "of them at the start, and later doubles now and then."
        ).format(n_scales=len(scales), n_bad=len(bad)),
    )


def speed_ups(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], device: torch.device) -> None:
    """Draw the speed-up of a step over float32 against the batch size.

    Parameters
    ----------
    curves
        For each name the batch sizes and the speed-ups.
    device
        The device they were measured on; on the simulated one they are modelled.
    """
    kind = kind_of(device)
    ranges = _("; ").join(
        _("{name} {min_y:.2g} to {max_y:.2g}").format(name=name, min_y=min(y), max_y=max(y))
        for name, (__, y) in curves.items()
    )
    plots.curves(
        curves,
        xlabel=_("batch size"),
        ylabel=_("float32 time / 16-bit time"),
        alt=_("Speed-up against batch size, {kind}: {ranges}.").format(kind=_(kind), ranges=ranges),
        title=abilities(device).name,
        log="xy",
        kinds=dict.fromkeys(curves, kind),
        reference=(1, _("as fast as float32")),
    )


def scores(groups: Mapping[str, Sequence[float]], xlabel: str) -> None:
    """Draw one dot for each run, a row for each group, with a bar at the mean.

    Parameters
    ----------
    groups
        For each name its values, in %.
    xlabel
        The label of the x axis.
    """
    fig, ax = plt.subplots(figsize=(7.2, 0.6 * len(groups) + 1.0), layout="constrained")
    for row, values in enumerate(groups.values()):
        mean = statistics.fmean(values)
        ax.plot([mean, mean], [row - 0.28, row + 0.28], color="#444444", linewidth=2)
        heights = [row + 0.4 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
        ax.plot(values, heights, MARKERS[row], color=COLOURS[row], alpha=0.75)
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set(xlabel=xlabel, ylim=(len(groups) - 0.5, -0.5))
    ranges = _("; ").join(
        _("{name} {min_v:.1f} to {max_v:.1f}, mean {fmean:.1f}").format(
            name=name, min_v=min(v), max_v=max(v), fmean=statistics.fmean(v)
        )
        for name, v in groups.items()
    )
    present(fig, _("One dot a run, with the mean as a bar. {ranges}.").format(ranges=ranges))
