"""What a forward pass keeps for a backward one."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import nn


def megabytes_kept(model: nn.Module, x: torch.Tensor, context: AbstractContextManager[object]) -> float:
    """Return how many megabytes autograd keeps of a forward pass in ``context``."""
    storages: dict[int, int] = {}  # by storage: two layers may keep the same tensor

    def note(t: torch.Tensor) -> torch.Tensor:
        storages[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with context, torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        model(x)
    return sum(storages.values()) / 1e6
