"""What several checks of this lesson share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from course_lessons.shared.checking import Batches
from course_utils.exercises import Judge
from course_utils.exercises.forms import ComparesToReference, nearly

_ZERO, _BACKWARD, _STEP = "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"
_LOSS, _LOOP = "F.cross_entropy(model(x), y)", "for x, y in batches:"
_LINE = f"loss = {_LOSS}"
SLIPS = {
    "piles-up": {_ZERO: ""},
    "step-first": (
        {_LINE: f"{_STEP}\n{_LINE}", _STEP: ""},
        {_LINE: f"{_STEP}\n{_LINE}", _ZERO: "", _STEP: ""},
    ),
    "summed": {_LOSS: "F.cross_entropy(model(x), y, reduction='sum')"},
    "softmax-twice": {_LOSS: "F.cross_entropy(model(x).softmax(1), y)"},
}
"""What goes wrong in a loop of one step for each batch, as edits of it."""

SAID = {
    "step-first": "In each round the optimiser steps before `backward()`: the gradient of this batch is not there yet.",
    "softmax-twice": "There is a softmax before the loss, and `cross_entropy` makes one itself: give it the logits.",
}
"""What is said of two of them."""


def small_model(*, norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    """A small classifier with fixed weights: 6 features, 3 classes."""
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def sgd(model: nn.Module) -> torch.optim.SGD:
    """An optimiser with momentum, which counts its steps in ``steps``; in ``in_eval`` the passes in eval mode."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.steps = optimizer.in_eval = 0
    optimizer.register_step_pre_hook(_count)

    def note(model: nn.Module, _: object, out: torch.Tensor) -> None:
        optimizer.in_eval += out.requires_grad and not model.training

    model.register_forward_hook(note)
    return optimizer


def _count(optimizer: Any, *_: Any) -> None:
    optimizer.steps += 1


def over(
    reference: Callable[..., Any],
    case: Callable[[int], tuple[Any, ...]],
    n: int,
    known_mistakes: Mapping[str, Any],
    **more: Any,
) -> ComparesToReference:
    """`ComparesToReference` over `n` trainings or evaluations, which `case` makes anew by their number."""
    more = {"alike": nearly(1e-4, 1e-5), "situation": said, **more}
    return ComparesToReference(
        reference, lambda: [case(at) for at in range(n)], known_mistakes, **more
    )


def weights_after(reference: Any, case: Any, n: int, known_mistakes: Any) -> ComparesToReference:
    """A check of the steps that an answer's optimiser made, and of the weights and the learning rate after them.

    An answer is called with a model, batches, an optimiser, and whatever else a case holds.
    """

    def look(_: object, model: nn.Module, batches: Batches, optimizer: Any, *more: Any) -> Any:
        weights = [p.detach().clone() for p in model.parameters()]
        return optimizer.steps, weights, optimizer.param_groups[0]["lr"], optimizer.in_eval

    def shown(value: Any) -> str:
        steps, weights, rate, in_eval = value
        mode = f", {in_eval} batches in eval mode" if in_eval else ""
        return f"{steps} step{'s' * (steps != 1)}, a weight {float(weights[0][0, 0]):.5f}, lr {rate:g}{mode}"

    return over(reference, case, n, known_mistakes, look=look, shown=shown)


def said(_: object, batches: Batches, *more: Any) -> str:
    """Say in words what a case of a training or an evaluation is."""
    k = f", k = {more[1]}" if len(more) > 1 else ""
    return f"batches of {', '.join(str(len(y)) for _, y in batches)}{k}"


def python_float(judge: Judge, got: object) -> float:
    """Return a Python float, or a number of NumPy's; refuse the rest."""
    return float(judge.is_a(got, (float, np.floating), "a Python float"))
