"""The parts of train_ddp.py: its options, the data set, the network, and its evaluation."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from course_language import _
from course_utils.data import load_digits


def options() -> argparse.Namespace:
    """Return the options on the command line: ``epochs``, ``batch`` (of one rank) and ``checkpoint``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32, help=_("digits of one rank in one step"))
    parser.add_argument("--checkpoint", type=Path, default=Path("work/train"))
    return parser.parse_args()


def rows() -> TensorDataset:
    """Return the training digits as a data set: images (28, 28), float32 from 0 to 1, and int64 labels."""
    digits = load_digits()
    return TensorDataset(digits.train_x.float() / 255, digits.train_y)


def network() -> nn.Sequential:
    """Return a network with dropout, with the same weights on each rank and in each run.

    As a side effect, PyTorch's global generator is seeded with 0.
    """
    torch.manual_seed(0)
    layers = nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
    return nn.Sequential(*layers)


def hits_of_this_rank(net: nn.Module, device: torch.device) -> tuple[Tensor, int]:
    """Return how many of its share of the test digits this rank reads correctly, and the whole set's size.

    The first is a tensor without dimensions on ``device``, to be summed over the ranks. The network is left
    in evaluation mode.
    """
    digits = load_digits()
    share = slice(dist.get_rank(), None, dist.get_world_size())
    net.eval()
    with torch.inference_mode():
        guess = net((digits.test_x[share].float() / 255).to(device)).argmax(1)
        return (guess == digits.test_y[share].to(device)).sum(), len(digits.test_y)
