"""How large lesson 07's five loops must be on a card, so that each has its own regime there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from course_lessons.shared.profiling import facts

ENOUGH = {"loop 2": ("busy", 0.9), "loop 4": ("busy", 0.9), "loop 5": ("waiting", 0.3)}
"""Which share of a step each loop's batch has to reach. The other loops are the same on every card."""

DOUBLINGS = 5
"""How often a batch is doubled at most: what it takes of memory grows with it."""


def fitted(
    loops: Mapping[str, Mapping[str, Any]],
    make_step: Callable[..., Callable[[], object]],
    device: torch.device,
) -> dict[str, Mapping[str, Any]]:
    """Return the loops with batches that are large enough for a device.

    A batch is doubled until a trace of two steps shows that the device is busy for 90 % of the time, or, in the loop
    that asks for values, that the host waits for 30 % of it. A CPU is host and device at once, so there they stay as
    they are.

    Parameters
    ----------
    loops
        For each name the arguments of ``make_step``.
    make_step
        Returns a training step; see the lesson.
    device
        Where the loops run.
    """
    fit = dict(loops)
    for name, (share, least) in ENOUGH.items():
        for _ in range(DOUBLINGS if device.type != "cpu" else 0):
            found = facts(make_step(**fit[name]), device, calls=2, values=False)
            if getattr(found, share) >= least:
                break
            fit[name] = {**fit[name], "batch": 2 * fit[name]["batch"]}
    return fit
