"""Device mismatches, raised on purpose."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from course_utils import expect_error

PLACES = "same device|should be the same|is on CPU|Placeholder"
"""Pattern of the messages of CUDA, MPS and the simulated device if tensors are on different devices."""


def misplaced(
    device: torch.device, kind: type[BaseException] = RuntimeError, match: str = PLACES
) -> AbstractContextManager[Any]:
    """Return a context manager that expects a device mismatch error, or nothing on the CPU."""
    return nullcontext() if device.type == "cpu" else expect_error(kind, match)
