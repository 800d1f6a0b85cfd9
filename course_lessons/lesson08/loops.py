"""Six training loops with one planted fault each, and their arguments."""

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
    """Return linear layers of these sizes with ReLU between them; without values if ``no_data``."""
    torch.manual_seed(0)
    with torch.device("meta") if no_data else nullcontext():
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        model = nn.Sequential(*layers[:-1])
    return model.to_empty(device=device) if no_data else model.to(device)


def _sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    """Return SGD with momentum for a model."""
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)


def _random_rows(n: int, width: int, classes: int) -> tuple[Tensor, Tensor]:
    """Return random inputs (n, width) and labels (n,), on the CPU."""
    return torch.randn(n, width), torch.randint(classes, (n,))


def _batches(
    sizes: Sequence[int], width: int, classes: int, device: torch.device, no_data: bool
) -> list[tuple[Tensor, ...]]:
    """Return batches of these sizes on a device; with ``no_data`` without values."""
    if no_data:
        empty = partial(torch.empty, device=device)
        return [(empty(n, width), empty(n, dtype=torch.int64)) for n in sizes]
    return [tuple(t.to(device) for t in _random_rows(n, width, classes)) for n in sizes]


def _arguments_a(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    """Return the arguments of `loop_a`."""
    rows, width = (1800, 512) if no_data else (24, 48)
    model = _network([width, width, width, width, 10], device, no_data)
    batches = _batches([rows, 3 * rows // 4, rows], width, 10, device, no_data)
    scaled = [(60 * x, y) for x, y in batches]  # gradients' norms far above 10: clipping has an effect
    # Parameter by parameter: the host has as much to ask for after the wait as the device has to do.
    own = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4, "foreach": False}
    return model, scaled, torch.optim.SGD(model.parameters(), **own)


ROWS_B, WIDTH_B = 90, 3 * 112 * 112
"""The number of images of loop b, and the number of values in each."""


def _arguments_b(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    """Return the arguments of `loop_b`."""
    model = _network([WIDTH_B, 16, 10], device, no_data)
    images, labels = _random_rows(ROWS_B, WIDTH_B, 10)
    order = list(torch.randint(ROWS_B, (ROWS_B,)).split(16))  # a row can come twice
    return model, images, labels, order, _sgd(model, 0.005), device


def _arguments_c(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    """Return the arguments of `loop_c`."""
    model = _network([64, 64, 10], device, no_data)
    batches = [_random_rows(32, 64, 10) for _ in range(8)]

    return model, partial(Loader, batches), 3, _sgd(model), device


def _arguments_d(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    """Return the arguments of `loop_d`."""
    model = _network([32, 32, 10], device, no_data)
    batches = [
        (*batch, torch.rand(len(batch[0])).to(device) + 0.5)
        for batch in _batches([12, 12, 9], 32, 10, device, no_data)
    ]
    return model, batches, _sgd(model)


def _arguments_e(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    """Return the arguments of `loop_e`."""
    rows, width = (2048, 1024) if no_data else (24, 16)
    model = _network([width, width, width, width], device, no_data)
    if no_data:
        batches = [(torch.empty(rows, width, device=device),) * 2 for _ in range(2)]
    else:
        x = [torch.randn(rows, width).to(device) for _ in range(3)]
        batches = [(part, part.flip(1)) for part in x]
    return model, batches, _sgd(model)


ROWS_F = 2048
"""The rows of a batch of loop f when it is timed."""


def _arguments_f(device: torch.device, no_data: bool) -> tuple[Any, ...]:
    """Return the arguments of `loop_f`."""
    rows, classes = (ROWS_F, 1000) if no_data else (24, 4)
    model = _network([64, classes], device, no_data)
    sizes = [rows] * (8 if no_data else 5)
    sizes[2] = rows // 3
    return model, _batches(sizes, 64, classes, device, no_data), _sgd(model)


# The cases ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One of the loops: its arguments, its fault, and how it is run."""

    loop: Callable[..., Any]
    # Called as prepare(device, no_data); returns the loop's arguments.
    prepare: Callable[[torch.device, bool], tuple[Any, ...]]
    fault: str
    no_data: bool = False  # whether it is timed without values, at a size too large to compute on the CPU
    profile: str = "T4"  # the GPU to simulate
    drawn: int | None = 2  # how many steps the timeline shows; None for all


CASES = {
    "a": Case(loop_a, _arguments_a, _("waits for the device"), no_data=True),
    "b": Case(loop_b, _arguments_b, _("many small copies")),
    "c": Case(loop_c, _arguments_c, _("waits for data"), drawn=8),
    "d": Case(loop_d, _arguments_d, _("many small kernels"), drawn=1),
    "e": Case(loop_e, _arguments_e, _("slow arithmetic"), no_data=True, profile="A100"),
    "f": Case(loop_f, _arguments_f, _("work that grows"), no_data=True, drawn=None),
}

FAULTS = {letter: case.fault for letter, case in CASES.items()}
_SIGNS = {
    "a": _(
        "Then results would come back from the device in the middle of each step, and the host would wait "
        "for them."
    ),
    "b": _("Then the lane of copies to the device would be full of short copies."),
    "c": _("Then loading would fill the host's lane."),
    "d": _("Then the table would show hundreds of kernels per step, of a few µs each."),
    "e": _("Then the device would be busy all the time, and near its best FLOP/s."),
    "f": _("Then each step would take longer than the one before."),
}
CHOICES = {FAULTS[letter]: _SIGNS[letter] for letter in sorted(FAULTS, key=FAULTS.__getitem__)}
"""What each fault would look like in the trace; sorted, so that the order does not reveal the loop."""
