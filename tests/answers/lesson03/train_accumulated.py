"""Known wrong answers to 03.train_accumulated, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson03.train_accumulated import train_accumulated
from course_utils.exercises.edited import edited


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


WRONG = {
    "not-by-count": _accumulate_by_k,
    "tail-dropped": edited(_accumulate_by_k, {" or i + 1 == len(batches)": ""}),
    "large-batch": _accumulate_joined,
    "all-graphs": edited(
        train_accumulated,
        {
            "optimizer.zero_grad()": "optimizer.zero_grad()\nloss = 0",
            "loss = F": "loss = loss + F",
            "    loss.backward()": "loss.backward()",
        },
    ),
    "piles-up": edited(train_accumulated, {"optimizer.zero_grad()": ""}),
    "steps": edited(
        _accumulate_by_k, {"if (i + 1) % k == 0 or i + 1 == len(batches):": "if True:"}
    ),
}
