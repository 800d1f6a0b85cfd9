"""Known answers to 05.logits_loss: wrong ones by their diagnosis, right ones by a name."""

import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson05.logits_loss import MISTAKES


def _of_sigmoid(logits, targets):
    return F.binary_cross_entropy(torch.sigmoid(logits), targets)


def _clamped(logits, targets):
    p = torch.sigmoid(logits.float()).clamp(1e-7, 1 - 1e-7)
    return -(targets * p.log() + (1 - targets) * (1 - p).log()).mean()


def _outside_autocast(logits, targets):
    with torch.autocast(logits.device.type, enabled=False):
        return F.binary_cross_entropy(torch.sigmoid(logits.float()), targets)


def _by_hand(logits, targets):
    return (torch.log(1 + torch.exp(logits.float())) - logits * targets).mean()


def _by_its_formula(logits, targets):
    z, t = logits.float(), targets.float()
    return (z.clamp(min=0) - z * t + torch.log1p(torch.exp(-z.abs()))).mean()


WRONG = {
    **MISTAKES,
    "refused": _of_sigmoid,
    "saturates": (_clamped, _outside_autocast),
    "overflows": _by_hand,
}
RIGHT = {
    "by its formula": _by_its_formula,
    "by softplus": lambda logits, targets: (F.softplus(logits) - logits * targets).mean(),
    "by the module": lambda logits, targets: nn.BCEWithLogitsLoss()(logits, targets),
}
