"""What several checks of this lesson share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

Batches = list[tuple[torch.Tensor, torch.Tensor]]


def small_model(*, norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    """A small classifier with fixed weights: 6 features, 3 classes."""
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def made_batches(sizes: Sequence[int], seed: int = 1) -> Batches:
    """Batches of the given sizes; the labels are random, so no batch is like another."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(n, 6, generator=generator),
            torch.randint(0, 3, (n,), generator=generator),
        )
        for n in sizes
    ]


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _apart(a: nn.Module, b: nn.Module) -> float:
    """The largest difference between the weights of two models."""
    return float((_weights(a) - _weights(b)).abs().max())


def alike(a: nn.Module, b: nn.Module) -> bool:
    return _apart(a, b) < 1e-5


def differ(model: nn.Module, right: nn.Module) -> str:
    return f"weights that are off by up to {_apart(model, right):.2g}"
