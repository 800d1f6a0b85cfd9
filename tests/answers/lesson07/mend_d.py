"""Known answers to 07.mend_d."""

import torch
from torch.nn import functional as F

from answers.lesson07 import stepped
from course_lessons.lesson07.mend_d import D_TWINS, mend_d
from course_lessons.shared.edited import edited


def one_by_one(model, x, y):
    return F.cross_entropy(model(x), y, reduction="none")


_MEAN = "(weights * each).sum() / weights.sum()"
_EACH = 'F.cross_entropy(model(x), y, reduction="none")'
_PIECES = "torch.cat([one_by_one(model, *p) for p in zip(x.split({0}), y.split({0}))])"


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

    return mend_d(model, watched(), optimizer)


WRONG = {
    **D_TWINS,
    "each-sample": {"model(x), y": "torch.stack([model(row) for row in x]), y"},
    "small-pieces": tuple(
        edited(mend_d, {_EACH: _PIECES.format(rows)}, one_by_one=one_by_one) for rows in (2, 4)
    ),
    "one-by-one-after": {
        _EACH: "torch.stack([F.cross_entropy(o, t) for o, t in zip(model(x), y)])"
    },
    "other-loss": {"model(x), y": "model(x) * weights[:, None], y", _MEAN: "each.mean()"},
    "rounded": {".tolist()": ".double().round(decimals=4).tolist()"},
    "changed-input": {"losses.append": "weights.div_(weights.sum())\nlosses.append"},
    "waits-each-step": (
        {"loss.detach()": "loss.item()", "torch.stack(losses).tolist()": "losses"},
        _waits_in_each_step,
    ),
}
RIGHT = {
    "by a dot product": {_MEAN: "each @ (weights / weights.sum())"},
    "by log_softmax": _d_by_log_softmax,
}
