"""The roofline: what a device reaches, over how much is computed with each byte. Lessons 01 and 07 show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt

from course_utils.plots import MARKERS, log_ticks, present


def roofline(
    peak_flops: float,
    bandwidth: float,
    points: Mapping[str, Sequence[tuple[float, float]]],
    kind: str = "measured",
) -> None:
    """Draw a device's roofline and the operations under it.

    Parameters
    ----------
    peak_flops
        The device's best rate, in FLOP/s.
    bandwidth
        Its best memory rate, in bytes/s.
    points
        For each operation, pairs of arithmetic intensity (FLOPs a byte) and FLOP/s.
    kind
        Where all these come from: ``"measured"`` or ``"modelled"``.
    """
    fig, ax = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    ridge = peak_flops / bandwidth
    every = [x for pairs in points.values() for x, _ in pairs]
    ends = [min(every) / 2, ridge, max(*every, ridge) * 3]
    roof = [min(peak_flops, bandwidth * x) / 1e9 for x in ends]
    ax.plot(ends, roof, color="#444444", label=f"roof (best rates, {kind})")
    ax.axvline(ridge, color="#999999", linewidth=1, linestyle=":")
    above = {"transform": ax.get_xaxis_transform(), "ha": "center", "color": "#555555"}
    ax.text(ridge, 1.02, f"ridge: {ridge:.3g} FLOPs/byte", **above)
    for i, (name, pairs) in enumerate(points.items()):
        x, y = zip(*pairs, strict=True)
        ax.plot(
            x,
            [rate / 1e9 for rate in y],
            MARKERS[i % len(MARKERS)],
            color=f"C{i}",
            label=f"{name} ({kind})",
        )
    ax.set(xscale="log", yscale="log", ylabel="GFLOP/s")
    ax.set_xlabel("arithmetic intensity, FLOPs a byte")
    log_ticks(ax.xaxis)
    log_ticks(ax.yaxis)
    ax.legend(fontsize=9)
    present(
        fig,
        f"A roofline: a slope up to the ridge at {ridge:.3g} FLOPs a byte, then flat at "
        f"{peak_flops / 1e9:.3g} GFLOP/s, with {kind} points of {', '.join(points)}.",
    )
