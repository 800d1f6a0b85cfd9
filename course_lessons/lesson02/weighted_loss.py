"""A loss with weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge

from .checking import equal, run_once, second


def weighted_loss(counts, device):
    counts = torch.tensor(counts)
    weight = counts.sum() / (len(counts) * counts)
    return nn.CrossEntropyLoss(weight=weight).to(device)


def _check_weighted_loss(answer: Any, judge: Judge) -> None:
    device = second()
    cpu = torch.device("cpu")
    for counts, place in (([6, 3, 1], cpu), ([5, 5], device), ([40, 10, 20, 30], device)):
        loss = judge.is_a(answer(counts, place), nn.CrossEntropyLoss, "an nn.CrossEntropyLoss")
        if loss.weight is None:
            judge.no("no-weight", seen="weight: None")
        n, total = len(counts), sum(counts)
        right = torch.tensor([total / (n * count) for count in counts])
        got = loss.weight
        if got.device != place:
            judge.no("stays", seen=f"weight on {got.device}", expected=f"weight on {place}")
        if got.dtype != right.dtype and equal(got.to(right.dtype), right):
            judge.no("other-dtype", seen=f"weights of {got.dtype}", expected=f"{right.dtype}")
        if not equal(got, right):
            diagnosis = "wrong-value"
            if _in_proportion(got, right):
                diagnosis = "not-scaled"
            elif _in_proportion(got, 1 / right):
                diagnosis = "upside-down"
            judge.no(diagnosis, seen=f"counts {counts}: {got}", expected=right)
        logits, labels = torch.randn(7, n), torch.arange(7) % n
        expected = F.cross_entropy(logits, labels, right)
        value = run_once(_Applied(loss, labels.to(place)), logits.to(place), "stays", judge)
        if not equal(value, expected):
            judge.no("other-loss", seen=value, expected=expected)
        if place.type != "meta" and loss.to(cpu).weight.device != cpu:
            judge.no("stays", seen="a weight that .to() does not move")


def _in_proportion(got: torch.Tensor, weights: torch.Tensor) -> bool:
    """Whether all numbers of one are the same positive multiple of the other's."""
    if got.device.type == "meta" or got.shape != weights.shape:
        return False
    ratio = got.detach().cpu().double() / weights
    return bool(ratio[0] > 0) and torch.allclose(ratio, ratio[0], rtol=1e-4)


class _Applied(nn.Module):
    """A loss with its labels: a module of one argument."""

    def __init__(self, loss: nn.Module, labels: torch.Tensor) -> None:
        super().__init__()
        self.loss, self.labels = loss, labels

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the loss."""
        return self.loss(logits, self.labels)


EXERCISE = Exercise(
    id="02.weighted_loss",
    title="A loss with weights",
    task="`counts[k]` says how often class `k` occurs in the training data. Return an `nn.CrossEntropyLoss`, ready for "
    "logits on `device`, in which class `k` has the weight total / (number of classes · `counts[k]`). So a "
    "rare class counts for more, and where all are equally frequent each weight is 1.",
    level=2,
    minutes=6,
    hints=(
        "Make a float tensor of the counts; the formula is one line on it.",
        "`nn.CrossEntropyLoss(weight=...)` keeps the tensor as a buffer. What moves a module's buffers?",
    ),
    reference=weighted_loss,
    check_answer=_check_weighted_loss,
    why="A loss without a weight has nothing to move. With one it is a module like any other: `.to(device)` on every "
    "loss costs nothing and is never wrong.",
    diagnoses={
        "stays": "The weight is not on the device where the logits are. Move the loss, or make the weight there.",
        "upside-down": "The frequent classes got the large weights. It should be the rare ones.",
        "not-scaled": "Rare classes do count for more, but the scale is another: with equal counts each weight should be 1.",
        "other-dtype": "The values are right, but not their type: the logits are float32, and the weights should be too.",
        "no-weight": "The loss has no weight: give it the tensor as `weight=`.",
        "wrong-value": "These are not the weights total / (number of classes · count).",
        "other-loss": "The weights are right, but the loss differs from a weighted cross-entropy.",
    },
)
