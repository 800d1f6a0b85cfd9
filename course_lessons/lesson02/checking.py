"""Shared by the checks of this lesson."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

import simgpu
from course_language import _
from course_utils.exercises import Judge
from simgpu.counters import Counters


def second() -> torch.device:
    """Return a device other than the CPU: the simulated one, or ``meta`` where there is none."""
    if simgpu.unavailable_reason() is not None:
        print(_("Judged without the simulated device: values on the CPU, places on the meta device."))
        return torch.device("meta")
    return torch.device("sim:0") if simgpu.enabled() else simgpu.enable()


def equal(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors agree; on the meta device only their shapes and dtypes can."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if got.device.type == "meta":
        return True
    return torch.allclose(got.detach().cpu().double(), expected.detach().double(), atol=1e-5)


def count_copies() -> AbstractContextManager[Counters]:
    """Count copies between host and device; nothing is counted without the simulated device."""
    return simgpu.count() if simgpu.unavailable_reason() is None else nullcontext(Counters())


def run_once(module: Callable[..., Any], x: torch.Tensor, diagnosis: str, judge: Judge) -> torch.Tensor:
    """Run a module; refuse an operation on two devices, unless the module moved ``x`` to the host itself."""
    with count_copies() as counted:
        try:
            got = module(x)
        except RuntimeError as error:
            if "device" not in str(error):
                raise
            diagnosis = "wrong-value" if counted.copies_to_host else diagnosis
            judge.no(
                diagnosis,
                seen=str(error),
                expected=_("a result on {device}").format(device=x.device),
            )
    return judge.is_a(got, torch.Tensor, _("a tensor from forward()"))
