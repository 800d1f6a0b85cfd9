"""The network of 07.frugal_step, the plain step to beat, and measurements of a step's cost and effect."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.checking import LiveTensors
from simgpu import worker

from .checking import Block

ROWS, WIDTH, INNER, BLOCKS = 32_768, 64, 256, 10


def challenge_model(width: int = WIDTH, inner: int = INNER, blocks: int = BLOCKS) -> nn.Sequential:
    """Return residual blocks and a linear layer for ten classes."""
    return nn.Sequential(*(Block(width, inner) for _ in range(blocks)), nn.Linear(width, 10))


def plain_step(model, x, y, loss_fn, optimizer):
    """Run an ordinary training step; return its loss."""
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


@worker.run_in_worker
def step_cost(step, room):
    """Run a step on a simulated T4 with memory ``room``; return modelled seconds and peak bytes."""
    with memory.temporary_device(room) as device:
        with torch.device("meta"):
            model = challenge_model()
        with memory.NoData():
            model.to_empty(device=device)
            x = torch.empty(ROWS, WIDTH, device=device)
            y = torch.zeros(ROWS, dtype=torch.int64, device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.sim.synchronize(device)
            start = simgpu.clock(device).host
            step(model, x, y, F.cross_entropy, optimizer)
            torch.sim.synchronize(device)
        return simgpu.clock(device).host - start, torch.sim.max_memory_allocated(device)


@functools.cache
def plain_cost():
    """Return the cost of the plain step; see `step_cost`."""
    return step_cost(plain_step, "2 GB")


def after(step, size):
    """Run a step with ``size`` rows on a small network on the CPU; return what it changed and used.

    Attributes of the result: ``loss``; ``change`` of each parameter; ``dtypes`` of the parameters; ``peak``
    bytes of activations; ``passes``, the number of forward passes of the first block; ``updates``, the number
    of optimizer steps.
    """
    torch.manual_seed(size)
    model = challenge_model(4, 8) if size == ROWS else challenge_model(8, 16)
    x, y = torch.randn(size, model[-1].in_features), torch.randint(10, (size,))
    F.cross_entropy(model(x[:9]), y[:9]).backward()  # gradients that zero_grad() must clear
    before = [p.detach().clone() for p in model.parameters()]
    watch, passes, updates = LiveTensors(), [], []
    for block in model[:-1]:
        block.watch = watch
    model[0].calls = passes
    # With momentum, several small updates do not add up to a large one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.register_step_post_hook(lambda *_: updates.append(1))
    loss = step(model, x, y, F.cross_entropy, optimizer)
    return SimpleNamespace(
        loss=loss,
        change=[p.detach() - b for p, b in zip(model.parameters(), before, strict=True)],
        dtypes={p.dtype for p in model.parameters()},
        peak=watch.peak,
        passes=len(passes),
        updates=len(updates),
    )


@functools.cache
def after_plain_step(size):
    """Return the effect of the plain step; see `after`."""
    return after(plain_step, size)
