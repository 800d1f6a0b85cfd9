"""The network that the scripts of lesson 10 shard: a small residual one for the digits."""

from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from course_utils import load_digits


class Block(nn.Module):
    """Adds to its input what two linear layers make of it, as a transformer's block does."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """Digits in, ten scores out; with ``checkpointing`` the blocks keep only their inputs."""

    def __init__(self, width: int = 256, blocks: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(784, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.last = nn.Linear(width, 10)
        self.checkpointing = False

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.last(x)

    def initialise(self) -> None:
        """Let every layer set its parameters, after `to_empty`."""
        for layer in self.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()

    def loss(self, step: int, part: int) -> Tensor:
        """Return the mean loss of this rank's 16 digits of a micro-batch, one of two of a step."""
        x, y = digits(self.first.weight.device)
        rank, ranks = dist.get_rank(), dist.get_world_size()
        first = 16 * ((2 * step + part) * ranks + rank) % (len(x) - 16)
        return F.cross_entropy(self(x[first : first + 16]), y[first : first + 16])


@functools.cache
def digits(device: torch.device | str, *, new: bool = False) -> tuple[Tensor, Tensor]:
    """Return the digits for training, or new ones, as rows of 784 numbers, and their labels."""
    data = load_digits()
    x, y = (data.test_x, data.test_y) if new else (data.train_x, data.train_y)
    return (x.float() / 255).flatten(1).to(device), y.to(device)
