"""Counts how often a line of Python makes the host wait for the device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from types import CodeType

import torch

import simgpu
from course_language import _
from simgpu import worker


def show_waits(lines: Sequence[str], device: torch.device) -> None:
    """Print a row for each line of Python: the line, and what `waits` says of it."""
    for line in lines:
        print(f"{line:38} {waits(line, device)}")


def waits(line: str, device: torch.device) -> str:
    """Run a line of Python; return as text how often the host waited for the device.

    On CUDA, PyTorch's sync debug mode warns at each wait that it knows. For other devices the line runs on
    the simulated device, which counts them.

    Parameters
    ----------
    line
        An expression in ``v``, a tensor of 1,000 values, and ``torch``.
    device
        The lesson's device.
    """
    if device.type != "cuda":
        return _("not known here") if worker.unavailable_reason() else _waits_simulated(line)
    code, names = _compiled(line, device)
    eval(code, names)  # to warm up: some work, such as loading a kernel, is done only once
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            eval(code, names)
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return _waits_text(sum("called a synchronizing" in str(w.message) for w in caught))


@worker.run_in_worker
def _waits_simulated(line: str) -> str:
    """Run a line on the simulated device; return the number of waits as text."""
    code, names = _compiled(line, simgpu.first())
    with simgpu.count() as counted:
        eval(code, names)
    return _waits_text(counted.synchronizations)


def _compiled(line: str, device: torch.device) -> tuple[CodeType, dict[str, object]]:
    """Compile a line; return the code and its globals."""
    values = torch.linspace(-1, 1, 1000).to(device)
    return compile(line, "<line>", "eval"), {"v": values, "torch": torch}


def _waits_text(count: int) -> str:
    """Return a number of waits as text."""
    return (
        _("runs on")
        if not count
        else _("waits")
        if count == 1
        else _("waits {count} times").format(count=count)
    )
