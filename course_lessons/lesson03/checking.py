"""Helpers for the checks of lesson 03."""

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


def sgd(model: nn.Module) -> torch.optim.SGD:
    """Return SGD with momentum that counts, in its attribute ``steps``, its steps, and in ``in_eval`` forward
    passes with gradients in eval mode.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.steps = optimizer.in_eval = 0
    optimizer.register_step_pre_hook(_count_step)

    def note(model: nn.Module, _: object, out: torch.Tensor) -> None:
        """Count a forward pass with gradients in eval mode."""
        optimizer.in_eval += out.requires_grad and not model.training

    model.register_forward_hook(note)
    return optimizer


def _count_step(optimizer: Any, *_: Any) -> None:
    """A step hook: count the step in ``optimizer.steps``."""
    optimizer.steps += 1


def over(
    reference: Any, case: Any, n: int, known_mistakes: Mapping[str, Any], **more: Any
) -> ComparesToReference:
    """Return `ComparesToReference` over ``n`` trainings or evaluations; ``case(i)`` returns the i-th case."""
    more = {"alike": nearly(1e-4, 1e-5), "situation": _situation, **more}
    return ComparesToReference(reference, lambda: [case(i) for i in range(n)], known_mistakes, **more)


def weights_after(reference: Any, case: Any, n: int, known_mistakes: Any) -> ComparesToReference:
    """Return a check that compares steps, and weights and learning rate after them, with the reference's.

    ``case(i)`` returns a case: model, batches, optimizer, and possibly more.
    """

    def look(_: object, model: nn.Module, batches: Batches, optimizer: Any, *more: Any) -> Any:
        """Return what is compared after a call: steps, weights, learning rate, batches in eval mode."""
        weights = [p.detach().clone() for p in model.parameters()]
        return optimizer.steps, weights, optimizer.param_groups[0]["lr"], optimizer.in_eval

    def shown(value: Any) -> str:
        """Return it as text for the learner."""
        steps, weights, rate, in_eval = value
        mode = _(", {in_eval} batches in eval mode").format(in_eval=in_eval) if in_eval else ""
        return ngettext(
            "{steps} step, a weight {first_weight:.5f}, lr {rate:g}{mode}",
            "{steps} steps, a weight {first_weight:.5f}, lr {rate:g}{mode}",
            steps,
        ).format(steps=steps, first_weight=float(weights[0][0, 0]), rate=rate, mode=mode)

    return over(reference, case, n, known_mistakes, look=look, shown=shown)


def _situation(__: object, batches: Batches, *more: Any) -> str:
    """Describe a case for the learner."""
    k = f", k = {more[1]}" if len(more) > 1 else ""
    return _("batches of {batches}{k}").format(batches=", ".join(str(len(y)) for _, y in batches), k=k)


def python_float(judge: Judge, got: object) -> float:
    """Return a number as a float if it is Python's or NumPy's; refuse everything else."""
    return float(judge.is_a(got, (float, np.floating), _("a Python float")))
