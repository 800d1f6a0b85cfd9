"""Known answers to 08.without_sigmoid: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from course_lessons.lesson08.without_sigmoid import without_sigmoid
from course_utils.exercises.edited import edited


def _in_other_words(model):
    def loss(logits, targets):
        return F.binary_cross_entropy_with_logits(logits, targets)

    return nn.Sequential(*list(model)[:-1]), loss, lambda logits: logits.sigmoid() > 0.5


def _with_loss(loss):
    return edited(without_sigmoid, {"nn.BCEWithLogitsLoss()": "loss"}, loss=loss)


WRONG = {
    "sigmoid-stays": edited(without_sigmoid, {"model[:-1]": "model"}),
    "copies": edited(without_sigmoid, {"model[:-1]": "copy.deepcopy(model[:-1])"}, copy=copy),
    "squared": _with_loss(nn.MSELoss()),
    "no-logits": _with_loss(nn.BCELoss()),
    "saturates": _with_loss(lambda logits, y: F.binary_cross_entropy(torch.sigmoid(logits), y)),
    "old-threshold": edited(without_sigmoid, {"logits > 0": "logits > 0.5"}),
    "not-bool": edited(without_sigmoid, {"logits > 0": "(logits > 0).float()"}),
}
RIGHT = {"in other words": _in_other_words}
