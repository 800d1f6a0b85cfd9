"""What can be moved in lesson 04."""

from __future__ import annotations

import torch

from course_language import word
from course_lessons.lesson04.drawings import scaled_gradients, share_lost
from course_lessons.shared.explorer import Explorer, slider


def loss_scale(gradients: torch.Tensor) -> None:
    """Let the learner choose a loss scale for these gradients, and see what float16 loses.

    Parameters
    ----------
    gradients
        Gradients in float32, of any shape; zeros are left out.
    """
    kept = gradients.detach().flatten().cpu()
    powers = range(0, 49, 4)
    lost = {power: share_lost(kept, 2.0**power) for power in range(49)}
    good = [power for power, (zeros, infinite) in lost.items() if zeros < 1 and not infinite]
    Explorer(
        question="How wide is the choice: at how many powers of two is less than 1 % of these gradients "
        "lost, and none inf?",
        guesses=(word("none"), "two or three", "about ten", "about thirty"),
        controls={"power": slider("loss scale", powers, 0, lambda power: f"2^{power}")},
        draw=lambda power: scaled_gradients(kept, 2.0**power),
        found=f"{len(good)}, from 2^{min(good, default=0)} to 2^{max(good, default=0)}: the scale moves the "
        "whole histogram and changes no shape. These are the "
        "first layer's gradients. Those of the last layer are larger and overflow earlier, and one inf costs "
        "the step.",
        telling={"power": 4},
    ).show()
