"""A loss that survives autocast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from course_utils.exercises import Exercise, Judge

from .checking import listed


def logits_loss(logits, targets):
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)


class _Banned(TorchFunctionMode):
    """Note whether the loss that CUDA refuses under autocast is called under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.called = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Note the call, then make it."""
        if getattr(func, "__name__", "") == "binary_cross_entropy":
            self.called |= torch.is_autocast_enabled("cpu")
        return func(*args, **(kwargs or {}))


def _exact(logits: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the mean binary cross entropy by its formula, in float64."""
    z, t = logits.detach().double(), targets.double()
    return float((z.clamp(min=0) - z * t + torch.log1p(torch.exp(-z.abs()))).mean())


@contextmanager
def _made_from_tensors() -> Iterator[list[str]]:
    """Note where a loss is made with the values it is to be called with, and make it without them."""
    made: list[str] = []
    original = nn.BCEWithLogitsLoss.__init__

    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1 and isinstance(args[1], torch.Tensor):
            made.append("nn.BCEWithLogitsLoss(logits, targets)")
            args = ()
        original(self, *args, **kwargs)

    with mock.patch.object(nn.BCEWithLogitsLoss, "__init__", note):
        yield made


def _check_logits_loss(answer: Callable[..., Any], judge: Judge) -> None:
    mild = torch.tensor([0.5, -1.25, 2.0, 0.75]), torch.tensor([1.0, 0.0, 0.25, 1.0])
    table = torch.tensor([[3.0, -2.0], [0.5, 8.0], [-6.0, 1.0]]), torch.eye(3)[:, :2]
    large = torch.tensor([200.0, -200.0, 200.0, -30.0]), torch.tensor([0.0, 1.0, 1.0, 1.0])
    for (logits, targets), dtype in (
        (mild, torch.float16),
        (mild, None),
        (table, None),
        (large, None),
        (large, torch.float16),
        (large, torch.bfloat16),
    ):
        logits = logits.to(dtype or torch.float32).requires_grad_()
        with (
            torch.autocast("cpu", dtype=dtype or torch.float16, enabled=dtype is not None),
            _Banned() as banned,
            _made_from_tensors() as made,
        ):
            got = answer(logits, targets)
        if made:
            judge.no("made-not-called", seen=made[0], expected="a loss, made and then called")
        got = judge.is_a(got, torch.Tensor, "a tensor")
        if banned.called:
            judge.no("refused", seen="binary_cross_entropy under autocast", expected="not that one")
        expected = _exact(logits, targets)
        if got.numel() != 1:
            judge.no("not-one", seen=f"{got.numel()} numbers", expected="their mean")
        rel = 1e-5 if dtype is None else 2e-2
        if not math.isclose(got.item(), expected, rel_tol=rel):
            extreme = logits.abs().max() > 100
            diagnosis = "wrong-formula"
            if extreme:
                diagnosis = "saturates" if math.isfinite(got.item()) else "overflows"
            elif math.isclose(got.item(), expected * logits.numel(), rel_tol=rel):
                diagnosis = "sum"
            elif math.isclose(got.item(), _exact(logits.sigmoid(), targets), rel_tol=rel):
                diagnosis = "sigmoid-twice"
            elif got.dtype != torch.float32 and math.isclose(got.item(), expected, rel_tol=2e-2):
                diagnosis = "rounded"
            judge.no(
                diagnosis,
                seen=f"{got.item():g} for the logits {listed(logits)}, targets {listed(targets)}",
                expected=f"{expected:g}",
            )
        if not got.requires_grad:
            judge.no("no-graph", seen=got, expected="a loss that can be differentiated")
        gradient = torch.autograd.grad(got, logits)[0].float()
        right = (logits.detach().float().sigmoid() - targets) / logits.numel()
        if not torch.allclose(gradient, right, atol=2e-3):
            judge.no(
                "gradient",
                seen=f"the gradient {listed(gradient)} for the logits {listed(logits)}",
                expected=listed(right),
            )


EXERCISE = Exercise(
    id="04.logits_loss",
    title="A loss that survives autocast",
    level=2,
    minutes=6,
    task="""
Write `logits_loss(logits, targets)`: the mean binary cross entropy of a model that ends in a linear layer,
without a sigmoid. Targets go from 0 to 1. It must be allowed under CUDA's autocast, and equal to the
formula for logits of ±200 too, where the sigmoid is 0 or 1 in every format of this lesson.
""",
    hints=(
        "Autocast refuses `nn.BCELoss` because a probability in 16 bits cannot be close to 1. What if the "
        "sigmoid and the logarithm are never apart?",
        "PyTorch has a loss for this. Its name says what it takes: `..._with_logits`.",
    ),
    reference=logits_loss,
    check_answer=_check_logits_loss,
    why="Taken together, the logarithm and the exponential of the sigmoid cancel, so nothing is "
    "rounded to 0 or 1 on the way. That is better in float32 too: confident mistakes keep "
    "their gradient.",
    diagnoses={
        "refused": "`binary_cross_entropy` (the function behind `nn.BCELoss`) was called under autocast. "
        "CUDA refuses it there with an error, though a CPU does not.",
        "saturates": "For large logits the loss stops growing: the sigmoid is exactly 0 or 1 there, and a clamp "
        "or a limited logarithm only hides it. Such examples get no gradient, however wrong they are.",
        "overflows": "For large logits the loss is not finite: an exponential overflowed, or a "
        "logarithm met 0.",
        "sigmoid-twice": "The sigmoid came in twice. A loss that takes logits has its own.",
        "rounded": "The value was rounded to 16 bits, though autocast is off. Leave the dtypes to autocast.",
        "wrong-formula": "For ordinary logits, or targets between 0 and 1, the value is another.",
        "made-not-called": "`nn.BCEWithLogitsLoss` is a class. Make the loss first, then call it with logits "
        "and targets.",
        "sum": "That is the sum over all entries; the task asks for the mean.",
        "not-one": "The losses of all entries came back; the task asks for their mean.",
        "no-graph": "The loss has no graph, so no gradient can come from it.",
        "gradient": "The value is right, but its gradient is not: some step on the way cuts it off.",
    },
)
