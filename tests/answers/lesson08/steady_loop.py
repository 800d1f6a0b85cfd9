"""Known wrong answers to 08.steady_loop, by the diagnosis that each must get."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course_lessons.lesson08.steady_loop import careful_loop, steady_loop
from course_utils.exercises.edited import edited


def _steady_with(after: Callable[[], Any]) -> Callable[..., Any]:
    """The loop with a read in each step, and something after it."""

    def one_by_one(model, batches, optimizer, device):
        hits = 0
        for batch in batches:
            hits += steady_loop(model, [batch], optimizer, device)
            after()
        return hits

    return one_by_one


def _steady_after_the_step(model, batches, optimizer, device):
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        hits += (model(x).argmax(1) == y).sum()
    return hits.item()


def _steady_untrained(model, batches, optimizer, device):
    with torch.no_grad():
        pairs = [(x.to(device), y.to(device)) for x, y in batches]
        return sum((model(x).argmax(1) == y).sum().item() for x, y in pairs)


WRONG = {
    "emptied": careful_loop,
    "collects": _steady_with(lambda: gc.collect()),
    "higher-peak": edited(steady_loop, {"del probabilities": ""}),
    "waits": _steady_with(lambda: None),
    "other-hits": _steady_after_the_step,
    "other-weights": _steady_untrained,
}
