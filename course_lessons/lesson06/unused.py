"""A model with a layer that its forward pass does not use: DDP refuses its second step."""

from __future__ import annotations

from torch import Tensor, nn


class HalfUsed(nn.Module):
    """Two linear layers, of which ``idle`` does not contribute to the output."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of ``used``."""
        return self.used(x)
