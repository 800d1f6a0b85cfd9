"""Six training loops with one planted fault each, and what each is given to train on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_language import _

from .loader import Loader

# The loops ---------------------------------------------------------------------------------------


def loop_a(model, batches, optimizer):
    """Train; return the norm of the whole gradient, for each step."""
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        total = 0.0
        for p in model.parameters():
            total += p.grad.norm().item() ** 2
        norms.append(total**0.5)
        optimizer.step()
    return norms


def loop_b(model, images, labels, order, optimizer, device):
    """Train on the rows that ``order`` names for each step; return the losses."""
    losses = []
    for rows in order:
        x = torch.stack([images[i].to(device) for i in rows])
        y = torch.stack([labels[i].to(device) for i in rows])
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_c(model, make_loader, epochs, optimizer, device):
    """Train for some epochs on what a loader gives; return the losses."""
    losses = []
    loader = make_loader()
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_d(model, batches, optimizer):
    """Train on samples of unequal weight; return the losses."""
    losses = []
    for x, y, weights in batches:
        loss = 0.0
        for i in range(len(x)):
            loss += weights[i] * F.cross_entropy(model(x[i]), y[i])
        loss = loss / weights.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_e(model, batches, optimizer):
    """Train; return the losses."""
    losses = []
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def loop_f(model, batches, optimizer):
    """Train; return after each step the accuracy over all samples so far."""
    accuracies, outputs, labels = [], [], []
    for x, y in batches:
        output = model(x)
        loss = F.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        outputs.append(output.detach())
        labels.append(y)
        hits = torch.cat(outputs).argmax(1) == torch.cat(labels)
        accuracies.append(hits.float().mean())
    return torch.stack(accuracies).tolist()


# What they train on ------------------------------------------------------------------------------


def _network(sizes: Sequence[int], device: torch.device, no_data: bool) -> nn.Sequential:
    torch.manual_seed(0)
    with torch.device("meta") if no_data else nullcontext():
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        model = nn.Sequential(*layers[:-1])
    return model.to_empty(device=device) if no_data else model.to(device)


def _sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def _rows(n: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """Inputs and labels, on the host."""
    return torch.randn(n, width), torch.randint(classes, (n,))


def _batches(
    sizes: Sequence[int], width: int, classes: int, device: torch.device, no_data: bool
) -> list[tuple[Tensor, ...]]:
    """Batches on the device; with ``no_data`` they have no values."""
    if no_data:
        empty = partial(torch.empty, device=device)
        return [(empty(n, width), empty(n, dtype=torch.int64)) for n in sizes]
    return [tuple(t.to(device) for t in _rows(n, width, classes)) for n in sizes]


def _case_a(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    rows, width = (1800, 512) if no_data else (24, 48)
    model = _network([width, width, width, width, 10], device, no_data)
    batches = _batches([rows, 3 * rows // 4, rows], width, 10, device, no_data)
    loud = [(60 * x, y) for x, y in batches]  # gradients' norms far above 10: clipping shows
    # Parameter by parameter: the host has as much to ask for after the wait as the device has to do.
    own = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4, "foreach": False}
    return model, loud, torch.optim.SGD(model.parameters(), **own)


ROWS_B, WIDTH_B = 90, 3 * 112 * 112
"""The images of loop b: how many, and the numbers in each."""


def _case_b(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    model = _network([WIDTH_B, 16, 10], device, no_data)
    images, labels = _rows(ROWS_B, WIDTH_B, 10)
    order = list(torch.randint(ROWS_B, (ROWS_B,)).split(16))  # a row can come twice
    return model, images, labels, order, _sgd(model, 0.005), device


def _case_c(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    model = _network([64, 64, 10], device, no_data)
    batches = [_rows(32, 64, 10) for _ in range(8)]

    return model, partial(Loader, batches), 3, _sgd(model), device


def _case_d(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    model = _network([32, 32, 10], device, no_data)
    batches = [
        (*batch, torch.rand(len(batch[0])).to(device) + 0.5)
        for batch in _batches([12, 12, 9], 32, 10, device, no_data)
    ]
    return model, batches, _sgd(model)


def _case_e(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    rows, width = (2048, 1024) if no_data else (24, 16)
    model = _network([width, width, width, width], device, no_data)
    if no_data:
        batches = [(torch.empty(rows, width, device=device),) * 2 for _ in range(2)]
    else:
        x = [torch.randn(rows, width).to(device) for _ in range(3)]
        batches = [(part, part.flip(1)) for part in x]
    return model, batches, _sgd(model)


ROWS_F = 2048
"""The rows of a batch of loop f, where its time is judged."""


def _case_f(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    rows, classes = (ROWS_F, 1000) if no_data else (24, 4)
    model = _network([64, classes], device, no_data)
    sizes = [rows] * (8 if no_data else 5)
    sizes[2] = rows // 3
    return model, _batches(sizes, 64, classes, device, no_data), _sgd(model)


# The cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One loop, what it is given, and what is wrong with it."""

    loop: Callable[..., Any]
    # Called with a device and whether to leave out all values; returns the loop's arguments.
    prepare: Callable[[torch.device, bool], tuple[Any, ...]]
    fault: str
    no_data: bool = False  # whether its time is judged without values, at a size too large to compute here
    profile: str = "T4"  # the GPU to simulate
    drawn: int | None = 2  # how many steps the picture shows; None for all


CASES = {
    "a": Case(loop_a, _case_a, _("waits for the device"), no_data=True),
    "b": Case(loop_b, _case_b, _("many small copies")),
    "c": Case(loop_c, _case_c, _("waits for data"), drawn=8),
    "d": Case(loop_d, _case_d, _("many small kernels"), drawn=1),
    "e": Case(loop_e, _case_e, _("slow arithmetic"), no_data=True, profile="A100"),
    "f": Case(loop_f, _case_f, _("work that grows"), no_data=True, drawn=None),
}

FAULTS = {letter: case.fault for letter, case in CASES.items()}
CHOICES = tuple(sorted(FAULTS.values()))
"""The faults, by name, in an order that gives nothing away."""
