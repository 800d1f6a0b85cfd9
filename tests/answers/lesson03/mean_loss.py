"""Known wrong answers to 03.mean_loss, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson03.mean_loss import mean_loss


def _loss_in_train_mode(model, batches):
    with torch.inference_mode():
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    return total.item() / sum(len(y) for _, y in batches)


def _loss_with_graph(model, batches):
    was_training = model.training
    model.eval()
    total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    model.train(was_training)
    return total.item() / sum(len(y) for _, y in batches)


def _loss_mean_of_means(model, batches):
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        total = sum(F.cross_entropy(model(x), y) for x, y in batches)
    model.train(was_training)
    return total.item() / len(batches)


def _loss_freezes(model, batches):
    model.requires_grad_(False)
    return mean_loss(model, batches)


def _loss_leaves_eval(model, batches):
    model.eval()
    with torch.inference_mode():
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    return total.item() / sum(len(y) for _, y in batches)


WRONG = {
    "train-mode": _loss_in_train_mode,
    "builds-graph": _loss_with_graph,
    "ragged-mean": _loss_mean_of_means,
    "mode-left": _loss_leaves_eval,
    "gradients-off": _loss_freezes,
}
