"""Errors about places, raised on purpose."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from course_utils import expect_error

PLACES = "same device|should be the same|is on CPU|Placeholder"
"""What CUDA, MPS and the simulated device say where tensors lie apart."""


def misplaced(
    device: torch.device, kind: type[BaseException] = RuntimeError, match: str = PLACES
) -> AbstractContextManager[Any]:
    """Expect an error about places; on a CPU alone nothing lies apart, and nothing is expected."""
    return nullcontext() if device.type == "cpu" else expect_error(kind, match)
