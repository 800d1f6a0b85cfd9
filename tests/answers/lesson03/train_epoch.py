"""Known answers to 03.train_epoch: wrong ones by the diagnosis that each must get, right ones by a name."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lessons.lesson03.train_epoch import _GIVES, _LEARNS, EXERCISE, train_epoch

_ZERO, _BACKWARD, _STEP = "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"
_MEAN_OF_MEANS = {"loss.item() * len(y)": "loss.item()", "total / seen": "total / len(batches)"}


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
    **{
        name: known_mistakes
        for name, known_mistakes in _LEARNS.items()
        if name in EXERCISE.diagnoses
    },
    **_GIVES,
    "piles-up": {_ZERO: "", **_MEAN_OF_MEANS},
    "wrong-type": _gives_tensor,
    "rounded": tuple({"total / seen": f"round(total / seen, {n})"} for n in (2, 3, 4, 5)),
}
RIGHT = {"by a closure": _by_closure}
