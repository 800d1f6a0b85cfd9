"""The network trained by lesson 08's five loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import Tensor, nn


class Mlp(nn.Module):
    """A multilayer perceptron: linear layers of these sizes with an activation between them."""

    def __init__(self, sizes: Sequence[int], activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        *layers, last = self.layers
        for layer in layers:
            x = self.activation(layer(x))
        return last(x)
