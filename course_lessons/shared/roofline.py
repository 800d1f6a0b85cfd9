"""Roofline plots: the rate that a device reaches, against arithmetic intensity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from course_language import _
from course_lessons.shared.explorer import Explorer, slider
from course_utils.number_format import amount
from course_utils.plots import BLUE, MARKERS, ORANGE, log_ticks, present
from simgpu import latency
from simgpu.cost import Gemm, Work
from simgpu.profiles import Profile, load


def roofline(
    peak_flops: float,
    bandwidth: float,
    points: Mapping[str, Sequence[tuple[float, float]]],
    kind: str = "measured",
) -> None:
    """Draw a device's roofline and points of operations.

    Parameters
    ----------
    peak_flops
        The device's best rate, in FLOP/s.
    bandwidth
        Its best memory bandwidth, in bytes/s.
    points
        For each operation, pairs of arithmetic intensity (FLOPs per byte) and FLOP/s.
    kind
        ``"measured"`` or ``"modelled"``: what all of these figures are.
    """
    fig, ax = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    ridge = peak_flops / bandwidth
    every = [x for pairs in points.values() for x, _ in pairs]
    ends = [min(every) / 2, ridge, max(*every, ridge) * 3]
    roof = [min(peak_flops, bandwidth * x) / 1e9 for x in ends]
    ax.plot(ends, roof, color="#444444", label=_("roof (best rates, {kind})").format(kind=_(kind)))
    ax.axvline(ridge, color="#999999", linewidth=1, linestyle=":")
    above = {"transform": ax.get_xaxis_transform(), "ha": "center", "color": "#555555"}
    ax.text(ridge, 1.02, _("ridge: {ridge:.3g} FLOPs/byte").format(ridge=ridge), **above)
    for i, (name, pairs) in enumerate(points.items()):
        x, y = zip(*pairs, strict=True)
        ax.plot(
            x,
            [rate / 1e9 for rate in y],
            MARKERS[i % len(MARKERS)],
            color=f"C{i}",
            label=_("{name} ({kind})").format(name=name, kind=_(kind)),
        )
    ax.set(xscale="log", yscale="log", ylabel="GFLOP/s")
    ax.set_xlabel(_("arithmetic intensity, FLOPs per byte"))
    log_ticks(ax.xaxis)
    log_ticks(ax.yaxis)
    ax.legend(fontsize=9)
    present(
        fig,
        _(
            "A roofline: a slope up to the ridge at {ridge:.3g} FLOPs per byte, then flat at "
            "{peak_flops}, with {kind} points of {points}."
        ).format(
            ridge=ridge,
            peak_flops=amount(peak_flops, "FLOP/s"),
            kind=_(kind),
            points=", ".join(points),
        ),
    )


WIDTH = 4096
CARDS = ("T4", "A100", "H100")
BATCHES = tuple(2**k for k in range(0, 15, 2))
_SIZES = {"float32": ("fp32", 4), "TF32": ("tf32", 4), "float16": ("fp16", 2)}


def layer(profile: Profile, dtype: str, batch: int) -> tuple[float, float, float]:
    """Return the modelled intensity (FLOPs per byte), FLOP/s and seconds of a linear layer, 4,096 by 4,096.

    Parameters
    ----------
    profile
        The card.
    dtype
        ``"float32"``, ``"TF32"`` or ``"float16"``; a card without TF32 computes in float32.
    batch
        Rows of the input.
    """
    unit, size = _SIZES[dtype]
    if unit == "tf32" and profile.tf32_flops is None:
        unit = "fp32"
    flops = 2 * batch * WIDTH * WIDTH
    moved = size * (2 * batch * WIDTH + WIDTH * WIDTH)
    product = Gemm(1, batch, WIDTH, WIDTH)
    taken = latency.seconds(Work(flops, moved, unit, "product", (product,)), profile)
    return flops / moved, flops / taken, taken


def explore() -> None:
    """Display an explorer: a linear layer on the roofline by batch, dtype and card (modelled)."""

    def draw(card: str, dtype: str, batch: int) -> tuple[Figure, str]:
        """Return the roofline of a card with the layer at one batch size, and the alternative text."""
        profile = load(card)
        peak = {
            "float32": profile.fp32_flops,
            "TF32": profile.tf32_flops or profile.fp32_flops,
            "float16": profile.fp16_flops,
        }[dtype]
        ridge = peak / profile.bandwidth
        fig, ax = plt.subplots(figsize=(7.2, 3.8))
        fig.subplots_adjust(left=0.12, right=0.96, top=0.85, bottom=0.16)
        roof = [profile.bandwidth * 0.1, peak, peak]
        points = [layer(profile, dtype, rows)[:2] for rows in BATCHES]
        x, rate, __ = layer(profile, dtype, batch)
        for (xs, ys), look in (
            (([0.1, ridge, 1e4], roof), {"color": "#444444"}),
            (
                zip(*points, strict=True),
                {"color": BLUE, "marker": "o", "alpha": 0.3, "linestyle": ""},
            ),
            (([x], [rate]), {"color": ORANGE, "marker": "o", "markersize": 11}),
        ):
            ax.plot([math.log10(x) for x in xs], [math.log10(y) for y in ys], **look)
        ax.axvline(math.log10(ridge), color="#999999", linewidth=1, linestyle=":")
        ax.set(xlim=(-1, 4), ylim=(10, 15.3))  # powers of ten: a logarithmic axis is slow to draw
        ax.set_xticks(range(-1, 5), ["0.1", "1", "10", "100", "1,000", "10,000"])
        ax.set_yticks(range(10, 16), ["0.01", "0.1", "1", "10", "100", "1,000"])
        ax.set(xlabel=_("arithmetic intensity, FLOPs per byte"), ylabel=_("TFLOP/s (modelled)"))
        side = _("bandwidth") if x < ridge else _("computing")
        words = _("{rate:.3g} TFLOP/s, {share:.0%} of the peak; {side} limits it").format(
            rate=rate / 1e12, share=rate / peak, side=side
        )
        units = dtype
        if dtype == "TF32" and profile.tf32_flops is None:
            units = _("float32 (it has no TF32)")
        ax.set_title(
            _("{card}, {units}, batch {batch}\n{words}").format(
                card=card, units=units, batch=batch, words=words
            )
        )
        return (
            fig,
            _(
                "Roofline of the {card} in {units}, modelled. Batch {batch}: {x:.3g} FLOPs per byte, {words}."
            ).format(card=card, units=units, batch=batch, x=x, words=words),
        )

    def reached(card: str, dtype: str, batch: int) -> int:
        """Return a batch from either side of the ridge, the nearest that there are; 0 for others."""
        return batch if (card, dtype) == ("A100", "float16") and batch in (64, 256) else 0

    Explorer(
        question=_(
            "A linear layer of 4,096 inputs and outputs: from which batch on does computing limit it "
            "on an A100 in float16?"
        ),
        guesses=("4", "16", "64", "256"),
        controls={
            "batch": slider(_("batch"), BATCHES),
            "dtype": slider("dtype", list(_SIZES)),
            "card": slider(_("card"), CARDS, "A100"),
        },
        draw=draw,
        found=_(
            "From 256 on, of these four. A larger batch uses each weight more often and moves the layer "
            "to the right. Half the bytes move it right as well, but tensor cores move the ridge further "
            "still: a faster chip needs a larger batch."
        ),
        telling={"batch": 3, "dtype": 2},
        answer="256",
        reached=reached,
        parts=2,
    ).show()
