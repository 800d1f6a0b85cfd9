"""A model with a layer that its forward does not use: what DDP says of that in the second step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from simgpu import cluster


class HalfUsed(nn.Module):
    """Two layers, of which one has no part in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)


def two_steps(dist: Any) -> None:
    """Take the gradient twice on this rank of a simulated cluster."""
    model = cluster.DistributedDataParallel(HalfUsed(), dist)
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
