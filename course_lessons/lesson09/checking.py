"""Helpers for the checks of lesson 09."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

import simgpu
from course_lessons.shared import memory


@contextmanager
def other_device() -> Iterator[torch.device]:
    """Yield a temporary simulated device; if there is none, ``meta``, whose tensors have no values."""
    if simgpu.unavailable_reason():
        yield torch.device("meta")
        return
    with memory.temporary_device("1 GB") as device:
        yield device


def without_this_frame(error: Exception) -> Exception:
    """Remove the check's own frame, the outermost, from an error's traceback."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def plain(value: Any) -> Any:
    """Return a NumPy scalar or a tensor of one element as a Python number; other values unchanged."""
    alone = hasattr(value, "item") and math.prod(value.shape) == 1
    return value.item() if alone else value
