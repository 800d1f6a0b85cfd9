"""Known answers to 02.weighted_loss: wrong ones by the diagnosis that each must get, right ones by a name."""

from __future__ import annotations

import torch
from torch import nn

from course_lessons.lesson02.weighted_loss import weighted_loss
from course_utils.exercises.edited import edited

_WEIGHT = "counts.sum() / (len(counts) * counts)"


def _made_there(counts, device):
    share = torch.tensor([c / sum(counts) for c in counts], device=device)
    return nn.CrossEntropyLoss(weight=1 / (share * len(counts)))


WRONG = {
    "stays": edited(weighted_loss, {".to(device)": ""}),
    "upside-down": edited(weighted_loss, {_WEIGHT: "counts / counts.sum()"}),
    "not-scaled": edited(weighted_loss, {_WEIGHT: "1 / counts"}),
    "other-dtype": edited(weighted_loss, {"weight=weight": "weight=weight.double()"}),
    "no-weight": edited(weighted_loss, {"weight=weight": ""}),
}
RIGHT = {"made on the device": _made_there}
