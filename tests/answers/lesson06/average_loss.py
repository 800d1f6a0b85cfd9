"""Known wrong answers to 06.average_loss, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson06.average_loss import LOSS_TWINS, average_loss
from course_utils.exercises.edited import edited


def _average_with_graph(model, batches, loss_fn):
    total = count = 0
    for x, y in batches:
        total += loss_fn(model(x), y) * len(x)
        count += len(x)
    return (total / count).item()


def _average_with_short_graph(model, batches, loss_fn):
    total = count = 0
    for x, y in batches:
        total += loss_fn(model(x), y).item() * len(x)
        count += len(x)
    return total / count


def _average_of_list(model, batches, loss_fn):
    batches = list(batches)
    with torch.no_grad():
        total = sum(loss_fn(model(x), y).item() * len(x) for x, y in batches)
    return total / sum(len(x) for x, _ in batches)


def _average_of_outputs(model, batches, loss_fn):
    outputs, targets = [], []
    with torch.no_grad():
        for x, y in batches:
            outputs.append(model(x))
            targets.append(y.clone())
        return loss_fn(torch.cat(outputs), torch.cat(targets)).item()


WRONG = {
    "leak": _average_with_graph,
    "graph": _average_with_short_graph,
    "keeps-batches": _average_of_list,
    "keeps-outputs": _average_of_outputs,
    **LOSS_TWINS,
    "tensor": edited(
        average_loss, {"inference_mode": "no_grad", "(model(x), y).item() *": "(model(x), y) *"}
    ),
}
