"""Known wrong answers to 02.weighted_loss, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch import nn

from course_lessons.lesson02.weighted_loss import weighted_loss


def _loss_on_cpu(counts, device):
    counts = torch.tensor(counts, dtype=torch.float32)
    return nn.CrossEntropyLoss(weight=counts.sum() / (len(counts) * counts))


def _loss_upside_down(counts, device):
    counts = torch.tensor(counts, dtype=torch.float32, device=device)
    return nn.CrossEntropyLoss(weight=counts / counts.sum())


def _loss_not_scaled(counts, device):
    counts = torch.tensor(counts, dtype=torch.float32, device=device)
    return nn.CrossEntropyLoss(weight=1 / counts)


def _loss_double(counts, device):
    loss = weighted_loss(counts, "cpu").double()
    return loss.to(device)


def _loss_without_weight(counts, device):
    return nn.CrossEntropyLoss().to(device)


WRONG = {
    "stays": _loss_on_cpu,
    "upside-down": _loss_upside_down,
    "not-scaled": _loss_not_scaled,
    "other-dtype": _loss_double,
    "no-weight": _loss_without_weight,
}
