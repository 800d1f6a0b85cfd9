"""A model with a layer that its forward does not use: DDP refuses its second step."""

from __future__ import annotations

from torch import Tensor, nn


class HalfUsed(nn.Module):
    """Two layers, of which one has no part in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x)
