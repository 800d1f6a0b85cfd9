"""Known answers to 08.mend_d."""

from torch.nn import functional as F

from answers.lesson08 import stepped
from course_lessons.lesson08.mend_d import D_MISTAKES, mend_d
from course_lessons.shared.edited import edited


def one_by_one(model, x, y):
    """Return the losses of a batch, one for each sample."""
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


WRONG = {
    **D_MISTAKES,
    "each-sample": {"model(x), y": "torch.stack([model(row) for row in x]), y"},
    "one-by-one-after": {_EACH: "torch.stack([F.cross_entropy(o, t) for o, t in zip(model(x), y)])"},
    "changed-input": {"losses.append": "weights.div_(weights.sum())\nlosses.append"},
    "wrong-value": (
        edited(mend_d, {_EACH: _PIECES.format(4)}, one_by_one=one_by_one),
        {"loss.detach()": "loss.item()", "torch.stack(losses).tolist()": "losses"},
    ),
}
RIGHT = {
    "by a dot product": {_MEAN: "each @ (weights / weights.sum())"},
    "by log_softmax": _d_by_log_softmax,
}
