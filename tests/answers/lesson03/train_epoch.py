"""Known answers to 03.train_epoch: wrong ones by their diagnosis, right ones by a name."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lessons.lesson03.train_epoch import (
    _MEAN_OF_MEANS,
    _MISTAKES_IN_RESULT,
    _MISTAKES_IN_WEIGHTS,
    train_epoch,
)


def _gives_tensor(model, batches, optimizer):
    return torch.tensor(train_epoch(model, batches, optimizer))


def _by_closure(model, batches, optimizer):
    model.train()
    losses, sizes = [], []
    for x, y in batches:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        losses.append(optimizer.step(closure).item())
        sizes.append(len(y))
    return np.average(losses, weights=sizes)


WRONG = {
    **_MISTAKES_IN_WEIGHTS,
    **_MISTAKES_IN_RESULT,
    "piles-up": {"optimizer.zero_grad()": "", **_MEAN_OF_MEANS},
    "wrong-type": _gives_tensor,
    "rounded": {"total / seen": "round(total / seen, 3)"},
}
RIGHT = {"by a closure": _by_closure}
