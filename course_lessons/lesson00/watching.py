"""What host and device do during a function: how long it takes, and when which of them is busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from course_lessons.shared.traces import Trace, trace, tracing_device
from course_utils.timing import kind_of, measure


@dataclass(frozen=True)
class Watched:
    """A function's time in seconds, its kind (``"measured"`` or ``"modelled"``), and its trace, if any."""

    seconds: float
    kind: str
    trace: Trace | None = None


def watch(work: Callable[[], object], device: torch.device) -> Watched:
    """Run a function several times; return its time, and what host and device did in one run.

    On the simulated device both are modelled. On CUDA, ROCm and XPU the time is measured without the
    profiler, and ``torch.profiler`` records one more run. On other devices there is only the time.

    Parameters
    ----------
    work
        A function without arguments.
    device
        The device that it uses.
    """
    if device.type == "sim":
        seen = trace(work, device)
        return Watched(seen.seconds, "modelled", seen)
    seconds = measure(work, device=device).median
    can_be_seen = device.type not in ("cpu", "mps") and tracing_device(device) == device
    return Watched(seconds, kind_of(device), trace(work, device) if can_be_seen else None)
