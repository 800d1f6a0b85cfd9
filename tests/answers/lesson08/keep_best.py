"""Known wrong answers to 08.keep_best, by the diagnosis that each must get."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def _keep_with(
    take: Callable[[nn.Module], Any] = lambda model: copy.deepcopy(model.state_dict()),
    give: Callable[[nn.Module, Any], Any] = lambda model, kept: model.load_state_dict(kept),
    better: Callable[[float, float], bool] = lambda found, best: found > best,
    first: float = -math.inf,
    result: Callable[[float, float], float] = lambda best, last: best,
) -> Callable[..., Any]:
    def keep_best(model, train_epoch, score, epochs):
        best, kept = first, take(model)
        for _ in range(epochs):
            train_epoch(model)
            found = score(model)
            if better(found, best):
                best, kept = found, take(model)
        give(model, kept)
        return result(best, found)

    return keep_best


def _copied_parameters(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def _give_parameters(model: nn.Module, kept: list[Tensor]) -> None:
    with torch.no_grad():
        for p, old in zip(model.parameters(), kept, strict=True):
            p.copy_(old)


WRONG = {
    "last-weights": _keep_with(take=lambda model: model.state_dict()),
    "no-buffers": _keep_with(take=_copied_parameters, give=_give_parameters),
    "later-tie": _keep_with(better=lambda found, best: found >= best),
    "last-score": _keep_with(result=lambda best, last: last),
    "other-weights": _keep_with(first=0.0),
}
