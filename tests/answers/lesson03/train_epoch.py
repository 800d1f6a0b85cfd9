"""Known wrong answers to 03.train_epoch, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson03.train_epoch import train_epoch
from course_utils.exercises.edited import edited


def _epoch_without_zero(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def _epoch_step_first(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        optimizer.step()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        total += loss.item() * len(y)
    return total / sum(len(y) for _, y in batches)


def _epoch_zero_before_step(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        total += loss.item() * len(y)
    return total / sum(len(y) for _, y in batches)


def _epoch_mean_of_means(model, batches, optimizer):
    model.train()
    total = 0.0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def _epoch_gives_tensor(model, batches, optimizer):
    return torch.tensor(train_epoch(model, batches, optimizer))


WRONG = {
    "piles-up": _epoch_without_zero,
    "step-first": _epoch_step_first,
    "nothing-learned": _epoch_zero_before_step,
    "ragged-mean": _epoch_mean_of_means,
    "not-train-mode": edited(train_epoch, {"model.train()": ""}),
    "wrong-type": _epoch_gives_tensor,
}
