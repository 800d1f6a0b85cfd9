"""What can be moved in lesson 04."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure

from course_lessons.shared.explorer import Explorer, slider
from course_utils.plots import BLUE, COLOURS, GREEN, ORANGE

_LEAST, _NORMAL, _LARGEST = (
    -24,
    -14,
    16,
)  # powers of two: the least, the least with all bits, the end


def loss_scale(gradients: torch.Tensor) -> None:
    """Let the learner choose a loss scale for these gradients, and see what float16 loses.

    Parameters
    ----------
    gradients
        Gradients in float32, of any shape; zeros are left out.
    """
    g = gradients.detach().flatten().cpu().float()
    g = g[g != 0]
    shares, edges = np.histogram(g.abs().double().log2().numpy(), bins=np.arange(-80, 41))
    shares = 100 * shares / len(g)

    def draw(power: int) -> tuple[Figure, str]:
        held = (g * 2.0**power).half()
        lost, infinite = (held == 0).float().mean().item(), held.isinf().float().mean().item()
        fig, ax = plt.subplots(figsize=(7.2, 3.3))
        fig.subplots_adjust(left=0.1, right=0.98, top=0.86, bottom=0.17)
        for start, end, colour, words in (
            (-60, _LEAST - 1, ORANGE, "becomes 0"),
            (_LEAST - 1, _NORMAL, COLOURS[4], "coarse"),
            (_NORMAL, _LARGEST, GREEN, "float16"),
            (_LARGEST, 40, ORANGE, "inf"),
        ):
            ax.axvspan(start, end, color=colour, alpha=0.16, linewidth=0)
            middle = (max(start, -40) + min(end, 28)) / 2
            ax.text(middle, 0.97, words, ha="center", va="top", transform=ax.get_xaxis_transform())
        ax.stairs(shares, edges + power, fill=True, color=BLUE)
        ax.set(xlim=(-40, 28), ylabel="share of the gradients, %")
        ax.set_xlabel("size of a gradient times the scale, as a power of two")
        ax.set_title(f"scale 2^{power}: {lost:.2%} lost (became 0), {infinite:.2%} inf")
        return fig, (
            f"Gradients times 2 to the power {power} against what float16 holds: {lost:.2%} become 0, "
            f"{infinite:.2%} become infinite."
        )

    Explorer(
        question="How large must the loss scale be for these gradients, so that float16 loses none?",
        guesses=("about 2^4", "about 2^10", "about 2^16", "no scale does"),
        controls={
            "power": slider("loss scale", list(range(0, 33, 2)), 0, lambda power: f"2^{power}")
        },
        draw=draw,
        found="The scale moves the whole histogram and changes no shape. Too far left, gradients become 0; "
        "too far right, the first one that becomes inf costs the step.",
        telling={"power": 5},
    ).show()
