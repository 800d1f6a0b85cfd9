"""What several checks of this lesson share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import simgpu
from course_utils.exercises import Judge


def second() -> torch.device:
    """A device that is not the CPU: the simulated one; ``meta``, without data, if it cannot be had."""
    if simgpu.unavailable_reason() is not None:
        print("Judged without the simulated device: values on the CPU, places on the meta device.")
        return torch.device("meta")
    return torch.device("sim:0") if simgpu.enabled() else simgpu.enable()


def equal(got: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors agree; on the meta device only their shapes and dtypes can."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return False
    if got.device.type == "meta":
        return True
    return torch.allclose(got.detach().cpu().double(), expected.detach().double(), atol=1e-5)


def run_once(
    module: Callable[..., Any], x: torch.Tensor, diagnosis: str, judge: Judge
) -> torch.Tensor:
    """Run a module; two devices in one operation are a refusal, any other error the learner's."""
    try:
        got = module(x)
    except RuntimeError as error:
        if "device" not in str(error):
            raise
        judge.no(diagnosis, seen=str(error), expected=f"a result on {x.device}")
    return judge.is_a(got, torch.Tensor, "a tensor from forward()")


TOO_EARLY = (
    "The result is copied to the host without waiting, and read at once: on a real GPU it may be read before it has "
    "arrived."
)


def counted_copies() -> Any:
    """Count transfers; without the simulated device there is nothing to count."""
    from contextlib import nullcontext

    return simgpu.count() if simgpu.unavailable_reason() is None else nullcontext()
