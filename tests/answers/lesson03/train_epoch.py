"""Known wrong answers to 03.train_epoch, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson03.train_epoch import train_epoch
from course_utils.exercises.edited import edited

_ZERO, _BACKWARD, _STEP = "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"
_LOSS = "loss = F.cross_entropy(model(x), y)"
_MEAN_OF_MEANS = {"loss.item() * len(y)": "loss.item()", "total / seen": "total / len(batches)"}


def _gives_tensor(model, batches, optimizer):
    return torch.tensor(train_epoch(model, batches, optimizer))


WRONG = {
    "piles-up": edited(train_epoch, {_ZERO: "", **_MEAN_OF_MEANS}),
    "step-first": edited(train_epoch, {_LOSS: f"{_STEP}\n{_LOSS}", _STEP: ""}),
    "nothing-learned": edited(train_epoch, {_ZERO: _BACKWARD, _BACKWARD: _ZERO}),
    "ragged-mean": edited(train_epoch, _MEAN_OF_MEANS),
    "not-train-mode": edited(train_epoch, {"model.train()": ""}),
    "wrong-type": _gives_tensor,
}
