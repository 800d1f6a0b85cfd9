"""The network that lesson 11's scripts shard: a small residual network for the digits."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_utils import load_digits


class Block(nn.Module):
    """A residual block: layer norm, linear, GELU, linear, as in a transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the block's output."""
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """A classifier of digits; with ``checkpointing`` the blocks are recomputed in backward."""

    def __init__(self, width: int = 256, blocks: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(784, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.last = nn.Linear(width, 10)
        self.checkpointing = False

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (n, 10), of rows of 784 numbers."""
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.last(x)

    def initialise(self) -> None:
        """Call ``reset_parameters`` of every layer, for use after `to_empty`."""
        for layer in self.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()

    def loss(self, step: int, part: int) -> Tensor:
        """Return the mean loss of this rank's 16 digits in a micro-batch: ``part`` 0 or 1 of a step."""
        x, y = digits(self.first.weight.device)
        rank, ranks = dist.get_rank(), dist.get_world_size()
        first = 16 * ((2 * step + part) * ranks + rank) % (len(x) - 16)
        return F.cross_entropy(self(x[first : first + 16]), y[first : first + 16])


@functools.cache
def digits(device: torch.device | str, *, new: bool = False) -> tuple[Tensor, Tensor]:
    """Return digits as rows of 784 numbers, 0 to 1, and labels: for training, or with ``new`` for testing."""
    data = load_digits()
    x, y = (data.test_x, data.test_y) if new else (data.train_x, data.train_y)
    return (x.float() / 255).flatten(1).to(device), y.to(device)
