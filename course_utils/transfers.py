"""Copies between the host and a device, and how long they take the host."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import torch

from . import simgpu


def pin(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a copy in pinned memory; the tensor itself where the device is the CPU."""
    return tensor if device.type == "cpu" else tensor.pin_memory()


def journey(
    copy: Callable[[], object], device: torch.device, n: int = 9
) -> tuple[list[float], list[float]]:
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
    for _ in range(0 if device.type == "cpu" else 1 if simulated else n):
        accelerator.synchronize()
        start = _now(device)
        kept = copy()  # held until the data are there
        returned.append(_now(device) - start)
        accelerator.synchronize()
        arrived.append(_now(device) - start)
        del kept
    return returned, arrived


def _now(device: torch.device) -> float:
    return simgpu.clock(device).host if device.type == "sim" else perf_counter()
