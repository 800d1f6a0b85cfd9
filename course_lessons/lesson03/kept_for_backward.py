"""The memory of tensors saved for the backward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import nn


def megabytes_kept(model: nn.Module, x: torch.Tensor, context: AbstractContextManager[object]) -> float:
    """Return how many megabytes (10⁶ bytes) autograd saves in a forward pass within ``context``.

    Storage shared by several saved tensors counts once.
    """
    storages: dict[int, int] = {}  # bytes by storage address: two layers may save the same tensor

    def record(t: torch.Tensor) -> torch.Tensor:
        """A pack hook: count the tensor's storage."""
        storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with context, torch.autograd.graph.saved_tensors_hooks(record, lambda t: t):
        model(x)
    return sum(storages.values()) / 1e6
