"""Known wrong answers to 03.train_accumulated, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def _accumulate_by_k(model, batches, optimizer, k):
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(model(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()


def _accumulate_joined(model, batches, optimizer, k):
    for i in range(0, len(batches), k):
        x, y = (torch.cat(part) for part in zip(*batches[i : i + k], strict=True))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def _accumulate_in_one_graph(model, batches, optimizer, k):
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        count = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in group)
        (total / count).backward()
        optimizer.step()


def _accumulate_without_tail(model, batches, optimizer, k):
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(model(x), y) / k).backward()
        if (i + 1) % k == 0:
            optimizer.step()
            optimizer.zero_grad()


def _accumulate_without_zero(model, batches, optimizer, k):
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        count = sum(len(y) for _, y in group)
        for x, y in group:
            (F.cross_entropy(model(x), y, reduction="sum") / count).backward()
        optimizer.step()


def _step_each_batch(model, batches, optimizer, k):
    for x, y in batches:
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) / k).backward()
        optimizer.step()


WRONG = {
    "not-by-count": _accumulate_by_k,
    "tail-dropped": _accumulate_without_tail,
    "large-batch": _accumulate_joined,
    "all-graphs": _accumulate_in_one_graph,
    "piles-up": _accumulate_without_zero,
    "steps": _step_each_batch,
}
