"""What can be moved in lesson 04."""

from __future__ import annotations

import torch

from course_lessons.lesson04.drawings import scaled_gradients
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
    Explorer(
        question="How wide is the choice: over how many powers of two do these gradients lose next to nothing?",
        guesses=("none", "two or three", "about ten", "nearly thirty"),
        controls={"power": slider("loss scale", powers, 0, lambda power: f"2^{power}")},
        draw=lambda power: scaled_gradients(kept, 2.0**power),
        found="The scale moves the whole histogram and changes no shape. Too far left, gradients become 0; too far "
        "right, the first that becomes inf costs the step. Here the choice between the two is wide: trying finds a place.",
        telling={"power": 4},
    ).show()
