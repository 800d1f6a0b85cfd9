"""Known wrong answers to 03.step_losses, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F


def _losses_by_item(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _losses_by_tensor(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.tensor(losses).tolist()


def _losses_as_tensors(model, batches, optimizer):
    losses = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def _losses_without_training(model, batches, optimizer):
    with torch.inference_mode():
        return torch.stack([F.cross_entropy(model(x), y) for x, y in batches]).tolist()


WRONG = {
    "reads-each-step": _losses_by_item,
    "reads-at-the-end": _losses_by_tensor,
    "not-floats": _losses_as_tensors,
    "weights": _losses_without_training,
}
