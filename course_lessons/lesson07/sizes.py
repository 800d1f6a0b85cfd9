"""How large lesson 07's five loops must be on a card, so that each has its own regime there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from course_lessons.shared.profiling import facts
from course_lessons.shared.traces import trace

ENOUGH = (None, ("busy", 0.9), None, ("busy", 0.9), ("waiting", 0.3))
"""Which share of a step has to reach what, for each loop in order. Loops 1 and 3 always stay."""

DOUBLINGS = 5
"""How often a batch is doubled at most: what it takes of memory grows with it."""

ROOM = {"times": 4}
"""The lesson's largest change to a loop, four times the batch: a larger batch has to leave room for it."""


def fitted(
    loops: Mapping[str, Mapping[str, Any]],
    make_step: Callable[..., Callable[[], object]],
    device: torch.device,
) -> dict[str, Mapping[str, Any]]:
    """Return the loops with batches that are large enough for a device.

    A batch is doubled until a trace of two steps shows that the device is busy for 90 % of the time, or, in
    the loop that asks for values, that the host waits for 30 % of it. Where the next size, or four times
    that, does not fit into the device's memory, the last one stays. On a CPU, which is host and device at
    once, all stay.

    Parameters
    ----------
    loops
        For each of the five, in the lesson's order and under any names, the arguments of ``make_step``.
    make_step
        Returns a training step; see the lesson.
    device
        Where the loops run.
    """
    fit = dict(loops)
    for name, enough in zip(loops, ENOUGH, strict=True):
        for _ in range(DOUBLINGS if enough and device.type != "cpu" else 0):
            found = facts(make_step(**fit[name]), device, calls=2, values=False)
            share, least = enough
            if getattr(found, share) >= least:
                break
            larger = {**fit[name], "batch": 2 * fit[name]["batch"]}
            if not _fits(make_step, {**larger, **ROOM}, device):
                break
            fit[name] = larger
    return fit


def _fits(
    make_step: Callable[..., Callable[[], object]], how: Mapping[str, Any], device: torch.device
) -> bool:
    """Return whether a step runs without running out of memory."""
    try:
        trace(make_step(**how), device, values=False)
    except torch.OutOfMemoryError:
        return False
    return True
