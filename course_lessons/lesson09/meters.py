"""Objects through which two exercises of lesson 09 read this machine's clock and memory."""

from __future__ import annotations

from functools import partial

import torch

from course_utils.devices import synchronize
from course_utils.timing import host_clock


class Machine:
    """A device's clock and memory statistics, with the methods that ``compare`` uses.

    Parameters
    ----------
    device
        The device of the trainings. If it does not count its memory, ``metered`` is False and each peak 0.
    """

    def __init__(self, device: torch.device) -> None:
        self.clock = host_clock(device)
        self.synchronize = partial(synchronize, device)
        memory = torch.get_device_module(device)
        self.metered = hasattr(memory, "max_memory_allocated")
        self.reset_peak = memory.reset_peak_memory_stats if self.metered else lambda: None
        self.peak = memory.max_memory_allocated if self.metered else lambda: 0


class PeakMeter:
    """A device's memory statistics, with the methods that ``memory_line`` uses.

    ``peaks`` has every peak that was read, in bytes, less the memory in use at the start. If the device does
    not count its memory, ``metered`` is False.

    Parameters
    ----------
    device
        The device of the steps.
    """

    def __init__(self, device: torch.device) -> None:
        self.peaks: list[int] = []
        self._memory, self._device = torch.get_device_module(device), device
        self.metered = hasattr(self._memory, "memory_stats")
        if device.type == "cuda":  # cuBLAS allocates its workspaces at the first matrix product
            x = torch.ones(8, 8, device=device)
            torch.nn.Linear(8, 8, device=device)(x).sum().backward()
            del x
        self._before = self._memory.memory_allocated(device) if self.metered else 0

    def reset_peak_memory_stats(self) -> None:
        """Reset the peak."""
        self._memory.reset_peak_memory_stats(self._device)

    def max_memory_allocated(self) -> int:
        """Return the peak in bytes, and append it to ``peaks``."""
        self.peaks.append(self._memory.max_memory_allocated(self._device) - self._before)
        return self.peaks[-1]

    def memory_allocated(self) -> int:
        """Return the bytes that tensors take now."""
        return self._memory.memory_allocated(self._device)
