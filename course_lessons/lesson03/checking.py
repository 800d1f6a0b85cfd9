"""Shared by the checks of this lesson."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from course_language import _, ngettext
from course_lessons.shared.checking import Batches
from course_utils.exercises import Judge
from course_utils.exercises.forms import ComparesToReference, nearly


def small_model(*, norm: bool = True, dropout: float = 0.0) -> nn.Sequential:
    """A small classifier with fixed weights: 6 features, 3 classes."""
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))


def sgd(model: nn.Module) -> torch.optim.SGD:
    """Return SGD that counts steps in ``steps``, and training passes in eval mode in ``in_eval``."""
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
    reference: Any, case: Any, n: int, known_mistakes: Mapping[str, Any], **more: Any
) -> ComparesToReference:
    """Return `ComparesToReference` over `n` trainings or evaluations; `case(i)` makes the i-th."""
    more = {"alike": nearly(1e-4, 1e-5), "situation": _situation, **more}
    return ComparesToReference(reference, lambda: [case(i) for i in range(n)], known_mistakes, **more)


def weights_after(reference: Any, case: Any, n: int, known_mistakes: Any) -> ComparesToReference:
    """Return a check of an answer's steps, and of the weights and the learning rate after them.

    A case holds a model, batches, an optimiser, and more.
    """

    def look(_: object, model: nn.Module, batches: Batches, optimizer: Any, *more: Any) -> Any:
        weights = [p.detach().clone() for p in model.parameters()]
        return optimizer.steps, weights, optimizer.param_groups[0]["lr"], optimizer.in_eval

    def shown(value: Any) -> str:
        steps, weights, rate, in_eval = value
        mode = _(", {in_eval} batches in eval mode").format(in_eval=in_eval) if in_eval else ""
        return ngettext(
            "{steps} step, a weight {first_weight:.5f}, lr {rate:g}{mode}",
            "{steps} steps, a weight {first_weight:.5f}, lr {rate:g}{mode}",
            steps,
        ).format(steps=steps, first_weight=float(weights[0][0, 0]), rate=rate, mode=mode)

    return over(reference, case, n, known_mistakes, look=look, shown=shown)


def _situation(__: object, batches: Batches, *more: Any) -> str:
    k = f", k = {more[1]}" if len(more) > 1 else ""
    return _("batches of {batches}{k}").format(batches=", ".join(str(len(y)) for _, y in batches), k=k)


def python_float(judge: Judge, got: object) -> float:
    """Return a Python float, or a number of NumPy's; refuse the rest."""
    return float(judge.is_a(got, (float, np.floating), _("a Python float")))
