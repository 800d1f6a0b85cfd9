"""Known wrong answers to 08.without_sigmoid, by the diagnosis that each must get."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def _parts(
    network: Callable[[nn.Sequential], nn.Module] = lambda model: model[:-1],
    loss: Callable[[], Any] = nn.BCEWithLogitsLoss,
    decide: Callable[[Tensor], Tensor] = lambda logits: logits > 0,
) -> Callable[..., Any]:
    def without_sigmoid(model):
        return network(model), loss(), decide

    return without_sigmoid


def _sigmoid_then_bce() -> Callable[[Tensor, Tensor], Tensor]:
    return lambda logits, targets: F.binary_cross_entropy(torch.sigmoid(logits), targets)


WRONG = {
    "sigmoid-stays": _parts(network=lambda model: model),
    "copies": _parts(network=lambda model: copy.deepcopy(model[:-1])),
    "squared": _parts(loss=nn.MSELoss),
    "no-logits": _parts(loss=nn.BCELoss),
    "saturates": _parts(loss=_sigmoid_then_bce),
    "old-threshold": _parts(decide=lambda logits: logits > 0.5),
    "not-bool": _parts(decide=lambda logits: (logits > 0).float()),
}
