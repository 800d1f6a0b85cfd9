"""This machine as two exercises of lesson 08 are handed it: a clock and a meter."""

from __future__ import annotations

from functools import partial

import torch

from course_utils.devices import synchronize
from course_utils.timing import host_clock


class Machine:
    """A device's clock and peak, under the names that ``compare`` asks for.

    Parameters
    ----------
    device
        Where the trainings run. Where it keeps no account of its memory, ``metered`` is False and
        each peak 0.
    """

    def __init__(self, device: torch.device) -> None:
        self.clock = host_clock(device)
        self.synchronize = partial(synchronize, device)
        memory = torch.get_device_module(device)
        self.metered = hasattr(memory, "max_memory_allocated")
        self.reset_peak = memory.reset_peak_memory_stats if self.metered else lambda: None
        self.peak = memory.max_memory_allocated if self.metered else lambda: 0


class PeakMeter:
    """A device's memory, under the names that ``memory_line`` asks for.

    ``peaks`` notes what was read, in bytes, without what was there at the start; where the device
    keeps no account of its memory, ``metered`` is False.

    Parameters
    ----------
    device
        Where the steps run.
    """

    def __init__(self, device: torch.device) -> None:
        self.peaks: list[int] = []
        self._memory, self._device = torch.get_device_module(device), device
        self.metered = hasattr(self._memory, "memory_stats")
        if device.type == "cuda":  # its libraries take workspaces at their first products
            x = torch.ones(8, 8, device=device)
            torch.nn.Linear(8, 8, device=device)(x).sum().backward()
            del x
        self._before = self._memory.memory_allocated(device) if self.metered else 0

    def reset_peak_memory_stats(self) -> None:
        """Forget the peak."""
        self._memory.reset_peak_memory_stats(self._device)

    def max_memory_allocated(self) -> int:
        """Return the bytes of the peak, and note them."""
        self.peaks.append(self._memory.max_memory_allocated(self._device) - self._before)
        return self.peaks[-1]

    def memory_allocated(self) -> int:
        """Return the bytes that tensors take now."""
        return self._memory.memory_allocated(self._device)
