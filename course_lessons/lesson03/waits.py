"""Which lines make Python wait for the device."""

from __future__ import annotations

import warnings
from types import CodeType

import torch

import simgpu
from course_language import _
from simgpu import worker


def waits(line: str, device: torch.device) -> str:
    """Run one line of Python and say how often the host waited for the device.

    A CUDA device is asked by PyTorch's debug mode, which warns at each wait that it knows of. For
    others the line runs on the simulated device, which counts them.

    Parameters
    ----------
    line
        An expression; ``v`` is a tensor of 1,000 values, and ``torch`` is there.
    device
        The lesson's device.
    """
    if device.type != "cuda":
        return _("not known here") if worker.unavailable_reason() else _simulated(line)
    code, names = _prepared(line, device)
    eval(code, names)  # what is done once, such as loading a kernel, is done
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            eval(code, names)
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return _times(sum("called a synchronizing" in str(w.message) for w in caught))


@worker.run_in_worker
def _simulated(line: str) -> str:
    code, names = _prepared(line, simgpu.first())
    with simgpu.count() as counted:
        eval(code, names)
    return _times(counted.synchronizations)


def _prepared(line: str, device: torch.device) -> tuple[CodeType, dict[str, object]]:
    values = torch.linspace(-1, 1, 1000).to(device)
    return compile(line, "<line>", "eval"), {"v": values, "torch": torch}


def _times(count: int) -> str:
    return (
        _("runs on")
        if not count
        else _("waits")
        if count == 1
        else _("waits {count} times").format(count=count)
    )
