"""Known answers to 08.without_sigmoid: wrong ones by the diagnosis that each must get, and a right one."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson08.without_sigmoid import without_sigmoid
from course_lessons.shared.edited import edited


def _in_other_words(model):
    def loss(logits, targets):
        return F.binary_cross_entropy_with_logits(logits, targets)

    return nn.Sequential(*list(model)[:-1]), loss, lambda logits: logits.sigmoid() > 0.5


def _with_loss(loss):
    return edited(without_sigmoid, {"nn.BCEWithLogitsLoss()": "loss"}, loss=loss)


def _with_decide(decide):
    return edited(without_sigmoid, {"lambda logits: logits > 0": "decide"}, decide=decide)


_BCE = F.binary_cross_entropy_with_logits
WRONG = {
    "three": {", lambda logits: logits > 0": ""},
    "order": {"model[:-1], nn.BCEWithLogitsLoss()": "nn.BCEWithLogitsLoss(), model[:-1]"},
    "no-network": {"model[:-1]": "list(model)[:-1]"},
    "sigmoid-stays": {"model[:-1]": "model"},
    "other-network": {"model[:-1]": "model[:-2]"},
    "copies": edited(without_sigmoid, {"model[:-1]": "copy.deepcopy(model[:-1])"}, copy=copy),
    "squared": _with_loss(nn.MSELoss()),
    "no-logits": _with_loss(nn.BCELoss()),
    "loss-class": _with_loss(nn.BCEWithLogitsLoss),
    "no-mean": _with_loss(nn.BCEWithLogitsLoss(reduction="none")),
    "sum": _with_loss(nn.BCEWithLogitsLoss(reduction="sum")),
    "twice": _with_loss(lambda logits, y: _BCE(logits.sigmoid(), y)),
    "turned-targets": _with_loss(lambda logits, y: _BCE(-logits, y)),
    "swapped": _with_loss(lambda y, logits: _BCE(logits, y)),
    "other-loss": _with_loss(lambda logits, y: _BCE(logits, y) / 2),
    "saturates": _with_loss(lambda logits, y: F.binary_cross_entropy(torch.sigmoid(logits), y)),
    "cut-off": (
        _with_loss(lambda logits, y: _BCE(logits.clamp(-50, 50), y)),
        _with_loss(lambda z, y: (z.exp().log1p() - z * y).mean()),
    ),
    "no-decide": _with_decide(0.0),
    "old-threshold": _with_decide(lambda logits: logits > 0.5),
    "at-edge": _with_decide(lambda logits: logits >= 0),
    "turned-round": _with_decide(lambda logits: logits < 0),
    "other-decision": _with_decide(lambda logits: logits.round().bool()),
    "other-shape": _with_decide(lambda logits: (logits > 0).all()),
    "not-bool": _with_decide(lambda logits: (logits > 0).float()),
}
RIGHT = {
    "in other words": _in_other_words,
    "by hand": _with_loss(lambda z, y: (F.softplus(z) - z * y).mean()),
}
