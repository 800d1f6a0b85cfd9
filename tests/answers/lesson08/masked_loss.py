"""Known wrong answers to 08.masked_loss, by the diagnosis that each must get."""

from __future__ import annotations

from torch.nn import functional as F

from course_lessons.lesson08.masked_loss import masked_loss


def _masked_by_index(logits, targets, mask):
    if not mask.any():
        return logits.sum() * 0
    return F.cross_entropy(logits[mask], targets[mask])


def _masked_mean(logits, targets, mask):
    kept = targets.masked_fill(~mask, -100)
    return F.cross_entropy(logits, kept, reduction="none").mean()


def _masked_sum(logits, targets, mask):
    return F.cross_entropy(logits, targets.masked_fill(~mask, -100), reduction="sum")


def _masked_nan(logits, targets, mask):
    return F.cross_entropy(logits, targets.masked_fill(~mask, -100))


def _masked_detached(logits, targets, mask):
    return masked_loss(logits.detach(), targets, mask)


WRONG = {
    "waits": _masked_by_index,
    "divided-by-all": _masked_mean,
    "summed": _masked_sum,
    "none-counts": _masked_nan,
    "no-gradient": _masked_detached,
}
