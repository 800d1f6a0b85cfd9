"""Explorers (interactive figures) of lesson 05."""

from __future__ import annotations

import torch

from course_language import _
from course_lessons.lesson05.drawings import scaled_gradients, share_lost
from course_lessons.shared.explorer import Explorer, slider


def loss_scale(gradients: torch.Tensor) -> None:
    """Display an explorer: the loss scale of these gradients, and what float16 loses.

    Parameters
    ----------
    gradients
        Gradients in float32, of any shape; zeros are left out.
    """
    kept = gradients.detach().flatten().cpu()
    powers = range(0, 49, 4)
    lost = {power: share_lost(kept, 2.0**power) for power in range(49)}
    good = [power for power, (zeros, infinite) in lost.items() if zeros < 1 and not infinite]
    guesses = (_("none"), _("two or three"), _("about ten"), _("about thirty"))
    inside = [power for power in powers if power in good]
    beyond = min((power for power in powers if power > max(good, default=0)), default=max(powers))
    ends = {inside[0], beyond} - {0} if inside else set()  # the lowest good scale, and the one after the last
    Explorer(
        question=_(
            "At how many powers of two is less than 1 % of these gradients lost, and none inf? That's how "
            "wide the choice is."
        ),
        guesses=guesses,
        controls={"power": slider(_("loss scale"), powers, 0, lambda power: f"2^{power}")},
        draw=lambda power: scaled_gradients(kept, 2.0**power),
        found=_(
            "There are {n_good}, from 2^{min_good} to 2^{max_good}. The scale moves the whole histogram and "
            "keeps its shape. These are the first layer's gradients. Those of the last layer are larger "
            "and overflow earlier, and one inf costs the step."
        ).format(n_good=len(good), min_good=min(good, default=0), max_good=max(good, default=0)),
        telling={"power": 4},
        answer=guesses[sum(len(good) >= least for least in (1, 6, 18))],
        reached=(lambda power: power in ends and power) if ends else None,
        parts=max(1, len(ends)),
    ).show()
