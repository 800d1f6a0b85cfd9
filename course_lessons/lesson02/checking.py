"""Helpers for the checks of lesson 02."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

import simgpu
from course_language import _
from course_utils.exercises import Judge
from simgpu.counters import Counters


def second_device() -> torch.device:
    """Return a device other than the CPU: the simulated one, or ``meta`` if there is none (then say so)."""
    if simgpu.unavailable_reason() is not None:
        print(_("Judged without the simulated device: values on the CPU, places on the meta device."))
        return torch.device("meta")
    return torch.device("sim:0") if simgpu.enabled() else simgpu.enable()


def equal(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two tensors agree in shape, dtype and, except on the meta device, values."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if got.device.type == "meta":
        return True
    return torch.allclose(got.detach().cpu().double(), expected.detach().double(), atol=1e-5)


def count_copies() -> AbstractContextManager[Counters]:
    """Return a context manager that counts copies between host and device, if there is a simulated one."""
    return simgpu.count() if simgpu.unavailable_reason() is None else nullcontext(Counters())


def run_once(module: Callable[..., Any], x: torch.Tensor, diagnosis: str, judge: Judge) -> torch.Tensor:
    """Run a module and return its result; if an operation fails because of two devices, refuse with
    ``diagnosis``.

    If the module itself copied to the host, the diagnosis is ``"wrong-value"``.
    """
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
