"""Counts how often a program reads values out of tensors: on a GPU each read waits for the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import simgpu
from course_lessons.shared.checking import Calls, tensors_in

_READS = {"item", "tolist", "numpy", "cpu", "__float__", "__int__", "__bool__", "__index__"}
_READS |= {"__array__", "__format__", "__repr__", "__contains__"}
_CONVERSIONS = {"tensor", "as_tensor", "asarray", "new_tensor"}


def _reads_of_call(name: str, args: Any, kwargs: Any) -> int:
    """Return how many reads a call makes; a conversion reads each tensor in a list separately."""
    if name in _CONVERSIONS:
        lists = [v for v in (*args, *kwargs.values()) if isinstance(v, (list, tuple))]
        return len(tensors_in(lists))
    return name in _READS


@contextmanager
def count_reads(
    device: torch.device,
) -> Iterator[tuple[Callable[[], int], Callable[[], bool]]]:
    """Count reads in the block: on the simulated device by synchronisations and copies, on the CPU by calls.

    Yields a function that returns the number of reads so far, and one that returns whether a non-blocking
    copy was made to the host.
    """
    if device.type == "cpu":
        counts: list[int] = []
        with Calls(lambda *call: counts.append(_reads_of_call(*call))):
            yield lambda: sum(counts), lambda: False
        return
    with simgpu.count() as counted:

        def reads() -> int:
            """Return the number of synchronisations, without waits for copies to the device, or copies to the
            host.
            """
            copies_to_device = [c for c in counted.copies if c.code == "h2d"]
            waits = sum(not (c.pinned and c.non_blocking) for c in copies_to_device)
            return max(counted.synchronizations - waits, counted.copies_to_host)

        yield reads, lambda: any(c.code == "d2h" and c.non_blocking for c in counted.copies)
