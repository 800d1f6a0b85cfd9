"""The seeds' small network, trained to the accuracy that its own script reaches, as fast as can be."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course_utils.devices import synchronize

from .loops import one_cycle

ROWS, EPOCHS = 10_000, 3


@dataclass(frozen=True)
class Recipe:
    """What the fast loop is tuned by: rows in a batch, the largest learning rate, steps."""

    batch: int
    rate: float
    steps: int


GRID = [
    Recipe(batch, rate, steps)
    for batch, rate, steps in itertools.product(
        (500, 1000, 2000), (0.02, 0.03, 0.04, 0.05, 0.06, 0.08), (10, 13, 16, 20, 24)
    )
]
"""What `tune` tries."""

TUNED = Recipe(batch=1000, rate=0.04, steps=16)
"""What was chosen, from what `tune` gave on a CPU: among the fastest, the one whose accuracies have room to spare."""

TRAIN, VALIDATION, TEST = 0, 1, 2
"""Which of three separate draws of rows; those for tuning have other seeds than those that are reported."""


def rows(seed: int, part: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return 10,000 rows of 20 features, and 1.0 where their sum is above zero."""
    g = torch.Generator().manual_seed(10 * seed + part)
    x = torch.randn(ROWS, 20, generator=g)
    return x.to(device), (x.sum(1, keepdim=True) > 0).float().to(device)


def layers() -> list[nn.Module]:
    """Return the seed's layers up to the logit."""
    return [nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)]


def seed_loop(x: Tensor, y: Tensor, device: torch.device) -> nn.Module:
    """Train as the seed does: a loader, Sigmoid with BCELoss, Adam, ``.item()`` at each step, three passes."""
    model = nn.Sequential(*layers(), nn.Sigmoid()).to(device)
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    pin = device.type in ("cuda", "xpu")
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True, pin_memory=pin)
    for _ in range(EPOCHS):
        running_loss = 0.0
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad()
            loss = criterion(model(data), target)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return model[:-1]


def fast_loop(x: Tensor, y: Tensor, device: torch.device, recipe: Recipe) -> nn.Module:
    """Train on slices of shuffled data on the device, with logits, fused Adam and a one-cycle schedule."""
    x, y = x.to(device), y.to(device)
    model = nn.Sequential(*layers()).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate, fused=True)
    batches = _slices(x, y, recipe.batch)
    for rate in one_cycle(recipe.steps, recipe.rate):
        some_x, some_y = next(batches)
        optimizer.param_groups[0]["lr"] = rate
        F.binary_cross_entropy_with_logits(model(some_x), some_y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def _slices(x: Tensor, y: Tensor, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        order = torch.randperm(len(x), device=x.device)
        yield from zip(x[order].split(batch), y[order].split(batch), strict=True)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of rows on the right side."""
    with torch.inference_mode():
        return ((model(x) > 0) == (y > 0)).float().mean().item()


def run(
    seed: int, recipe: Recipe | None, device: torch.device, part: int = TEST
) -> tuple[float, float]:
    """Train once, and return the seconds it took and the accuracy on held-out rows.

    The time is from the rows in the host's memory to the trained network, its making included.

    Parameters
    ----------
    seed
        Of the rows, the first weights and the order.
    recipe
        What the fast loop does; None for the seed's loop.
    device
        Where to train.
    part
        ``VALIDATION`` or ``TEST``.
    """
    x, y = rows(seed, TRAIN, torch.device("cpu"))
    torch.manual_seed(seed)
    synchronize(device)
    begin = perf_counter()
    model = fast_loop(x, y, device, recipe) if recipe else seed_loop(x, y, device)
    synchronize(device)
    took = perf_counter() - begin
    return took, accuracy(model, *rows(seed, part, device))


def tune(device: torch.device, seeds: int = 10) -> Iterator[tuple[Recipe, float, float]]:
    """Try every recipe of `GRID` on validation rows, with seeds of its own.

    Yields
    ------
    tuple
        A recipe; its time, a median in seconds; and by how much its accuracy is above that of the seed's
        loop: the lesser of the differences of the means and of the minima.
    """
    some = range(1000, 1000 + seeds)
    wanted = [run(seed, None, device, VALIDATION)[1] for seed in some]
    for recipe in GRID:
        times, got = zip(*(run(seed, recipe, device, VALIDATION) for seed in some), strict=True)
        above = min(statistics.mean(got) - statistics.mean(wanted), min(got) - min(wanted))
        yield recipe, statistics.median(times), above
