"""Known answers to 07.mend_d."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson07.mend_d import d_mean, d_unweighted, d_with, one_by_one
from course_lessons.lesson07.mend_f import stepped

_d_each_model = d_with(
    lambda model, x, y, w: (
        (w * F.cross_entropy(torch.stack([model(row) for row in x]), y, reduction="none")).sum()
        / w.sum()
    )
)


_d_pieces = d_with(
    lambda model, x, y, w: (
        sum(
            (wp * one_by_one(model, xp, yp)).sum()
            for xp, yp, wp in zip(x.split(2), y.split(2), w.split(2), strict=True)
        )
        / w.sum()
    )
)


def _d_by_item(model, batches, optimizer):
    losses = []
    for x, y, weights in batches:
        loss = (weights * one_by_one(model, x, y)).sum() / weights.sum()
        losses.append(loss.item())
        stepped(loss, optimizer)
    return losses


def _d_by_dot(model, batches, optimizer):
    losses = []
    for x, y, weights in batches:
        each = F.cross_entropy(model(x), y, reduction="none")
        losses.append(stepped(each @ (weights / weights.sum()), optimizer))
    return torch.stack(losses).tolist()


def _d_by_log_softmax(model, batches, optimizer):
    losses = []
    for x, y, weights in batches:
        picked = model(x).log_softmax(1).gather(1, y[:, None])[:, 0]
        losses.append(stepped(-(weights * picked).sum() / weights.sum(), optimizer))
    return [loss.item() for loss in losses]


def _waits_in_each_step(model, batches, optimizer):
    def watched():
        for batch in batches:
            yield batch
            torch.accelerator.synchronize(batch[0].device)

    return _d_by_dot(model, watched(), optimizer)


WRONG = {
    "each-sample": _d_each_model,
    "small-pieces": _d_pieces,
    "unweighted": d_unweighted,
    "divided-by-count": d_mean,
    "waits-each-step": (_d_by_item, _waits_in_each_step),
}
RIGHT = {
    "by a dot product": _d_by_dot,
    "by log_softmax": _d_by_log_softmax,
}
