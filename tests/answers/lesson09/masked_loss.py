"""Known answers to 09.masked_loss."""

import torch
from torch.nn import functional as F

from course_lessons.lesson09.masked_loss import MISTAKES


def _by_index(logits, targets, mask):
    if not mask.any():
        return logits.sum() * 0
    return F.cross_entropy(logits[mask], targets[mask])


def _by_where(logits, targets, mask):
    clean = torch.where(mask[:, None], logits, 0.0)
    losses = F.cross_entropy(clean, targets.clamp(min=0), reduction="none")
    return torch.where(mask, losses, 0.0).sum() / torch.clamp(mask.sum(), min=1)


WRONG = {
    **MISTAKES,
    "waits": _by_index,
}
RIGHT = {"where": _by_where}
