"""Copies between host and device, and how long they take on the host's clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from course_utils.timing import host_clock


def pin(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a copy of a tensor in pinned memory; for the CPU as the device, return the tensor itself."""
    return tensor if device.type == "cpu" else tensor.pin_memory()


def journey(copy: Callable[[], object], device: torch.device, n: int = 9) -> tuple[list[float], list[float]]:
    """Time a copy repeatedly, by the host's clock: until the call returns, and until the data have arrived.

    Parameters
    ----------
    copy
        A function that copies and returns the copy.
    device
        The device that the data are copied from or to. A simulated one is timed once, by its virtual
        clock. For the CPU both lists are empty.
    n
        The number of trials.

    Returns
    -------
    returned, arrived
        Lists of seconds, one for each trial.
    """
    simulated, accelerator = device.type == "sim", torch.get_device_module(device)
    returned, arrived = [], []
    now = host_clock(device)
    for _ in range(0 if device.type == "cpu" else 1 if simulated else n):
        accelerator.synchronize()
        start = now()
        copied = copy()  # held until the data are there
        returned.append(now() - start)
        accelerator.synchronize()
        arrived.append(now() - start)
        del copied
    return returned, arrived


def time_copies(
    copies: Mapping[str, Callable[[bool], object]], device: torch.device
) -> dict[str, dict[str, list[float]]]:
    """Time copies to a device, blocking and not; each is a function of ``non_blocking``.

    Returns the seconds of all trials of each copy: *blocking*, until the data have arrived; *returns*,
    until the non-blocking call returns; *arrives*, until its data have arrived.
    """
    times = {}
    for name, copy in copies.items():
        _, blocking = journey(lambda copy=copy: copy(False), device)
        returns, arrives = journey(lambda copy=copy: copy(True), device)
        times[name] = {"blocking": blocking, "returns": returns, "arrives": arrives}
    return times
