"""Known answers to 09.without_sigmoid."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson09.without_sigmoid import without_sigmoid
from course_lessons.shared.edited import edited


def _in_other_words(model):
    def loss(logits, targets):
        return F.binary_cross_entropy_with_logits(logits, targets)

    return nn.Sequential(*list(model)[:-1]), loss, lambda logits: logits.sigmoid() > 0.5


def _with_loss(loss):
    """Return the reference with another loss."""
    return edited(without_sigmoid, {"nn.BCEWithLogitsLoss()": "loss"}, loss=loss)


def _with_decide(decide):
    """Return the reference with another decision."""
    return edited(without_sigmoid, {"lambda logits: logits > 0": "decide"}, decide=decide)


WRONG = {
    "sigmoid-stays": {"model[:-1]": "model"},
    "copies": edited(without_sigmoid, {"model[:-1]": "copy.deepcopy(model[:-1])"}, copy=copy),
    "loss-class": _with_loss(nn.BCEWithLogitsLoss),
    "saturates": _with_loss(lambda logits, y: F.binary_cross_entropy(torch.sigmoid(logits), y)),
    "old-threshold": _with_decide(lambda logits: logits > 0.5),
}
RIGHT = {
    "in other words": _in_other_words,
    "by hand": _with_loss(lambda z, y: (F.softplus(z) - z * y).mean()),
}
