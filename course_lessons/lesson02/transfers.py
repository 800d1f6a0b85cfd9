"""Copies between the host and a device, and how long they take the host."""

from __future__ import annotations

from collections.abc import Callable

import torch

from course_utils.timing import host_clock


def pin(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a copy in pinned memory; the tensor itself where the device is the CPU."""
    return tensor if device.type == "cpu" else tensor.pin_memory()


def journey(copy: Callable[[], object], device: torch.device, n: int = 9) -> tuple[list[float], list[float]]:
    """Time a copy twice over: until the call returns, and until the data are there.

    Parameters
    ----------
    copy
        Makes the copy.
    device
        Where the data come from or go to. A simulated one has its own clock, and one trial is enough
        for it; with the CPU there is nothing to time, and both lists are empty.
    n
        How often to time it.

    Returns
    -------
    returned, arrived
        The host's seconds, one a trial.
    """
    simulated, accelerator = device.type == "sim", torch.get_device_module(device)
    returned, arrived = [], []
    now = host_clock(device)
    for _ in range(0 if device.type == "cpu" else 1 if simulated else n):
        accelerator.synchronize()
        start = now()
        kept = copy()  # held until the data are there
        returned.append(now() - start)
        accelerator.synchronize()
        arrived.append(now() - start)
        del kept
    return returned, arrived
