"""Finds batch sizes of lesson 08's five loops at which each is limited as intended on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from course_lessons.shared.profiling import facts
from course_lessons.shared.traces import trace

ENOUGH = (None, ("busy", 0.9), None, ("busy", 0.9), ("waiting", 0.3))
"""For each loop in order, the figure of `Facts` and the share it has to reach; None: keep the batch size."""

DOUBLINGS = 5
"""The maximum number of doublings of a batch: its memory grows with it."""

ROOM = {"times": 4}
"""Arguments of the lesson's largest change to a loop, four times the batch: it has to fit into memory too."""


def fitted(
    loops: Mapping[str, Mapping[str, Any]],
    make_step: Callable[..., Callable[[], object]],
    device: torch.device,
) -> dict[str, Mapping[str, Any]]:
    """Return the loops' arguments; the second, fourth and fifth loop's batch is enlarged to suit a device.

    A batch is doubled, at most `DOUBLINGS` times, until a trace of two steps shows that the device is busy
    for 90 % of the time, or, in the fifth loop, which reads values, that the host waits for 30 % of it. It
    ends earlier if four times the next batch (the lesson's largest change, `ROOM`) does not fit into the
    device's memory. On a CPU, which is host and device at once, the batches are not changed.

    Parameters
    ----------
    loops
        Keyword arguments of ``make_step`` for each of the five loops, in the lesson's order, under any keys.
        ``batch`` is among them.
    make_step
        Returns a training step; see the lesson. It takes ``times``, too: a factor on the batch.
    device
        The loops' device.
    """
    fit = dict(loops)
    for name, enough in zip(loops, ENOUGH, strict=True):
        for _ in range(DOUBLINGS if enough and device.type != "cpu" else 0):
            measured = facts(make_step(**fit[name]), device, calls=2, values=False)
            share, least = enough
            if getattr(measured, share) >= least:
                break
            larger = {**fit[name], "batch": 2 * fit[name]["batch"]}
            if not _fits(make_step, {**larger, **ROOM}, device):
                break
            fit[name] = larger
    return fit


def _fits(
    make_step: Callable[..., Callable[[], object]], how: Mapping[str, Any], device: torch.device
) -> bool:
    """Return whether a step with the arguments ``how`` runs without running out of the device's memory."""
    try:
        trace(make_step(**how), device, values=False)
    except torch.OutOfMemoryError:
        return False
    return True
