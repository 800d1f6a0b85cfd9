"""Known wrong answers to 04.logits_loss, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson04.logits_loss import logits_loss
from course_utils.exercises.edited import edited


def _bce_of_sigmoid(logits, targets):
    return F.binary_cross_entropy(torch.sigmoid(logits), targets)


def _bce_clamped(logits, targets):
    p = torch.sigmoid(logits.float()).clamp(1e-7, 1 - 1e-7)
    return -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()


def _bce_by_hand(logits, targets):
    return (torch.log(1 + torch.exp(logits.float())) - logits * targets).mean()


def _bce_sigmoid_twice(logits, targets):
    return F.binary_cross_entropy_with_logits(torch.sigmoid(logits), targets)


def _bce_in_half(logits, targets):
    return F.binary_cross_entropy_with_logits(logits.half(), targets.half())


def _bce_hard_targets(logits, targets):
    return F.binary_cross_entropy_with_logits(logits, (targets > 0.5).float())


def _bce_sum(logits, targets):
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")


WRONG = {
    "refused": _bce_of_sigmoid,
    "saturates": _bce_clamped,
    "overflows": _bce_by_hand,
    "sigmoid-twice": _bce_sigmoid_twice,
    "rounded": _bce_in_half,
    "wrong-formula": _bce_hard_targets,
    "made-not-called": edited(
        logits_loss, {"functional.binary_cross_entropy_with_logits": "BCEWithLogitsLoss"}
    ),
    "sum": _bce_sum,
}
