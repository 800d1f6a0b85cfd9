"""Known wrong answers to 07.mend_b, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson07 import detective
from course_lessons.lesson07.mend_b import b_in_order, b_step


def _b_pinned(model, images, labels, order, optimizer, device):
    losses = []
    images, labels = images.pin_memory(), labels.pin_memory()
    for rows in order:
        x = torch.stack([images[i].to(device, non_blocking=True) for i in rows])
        y = torch.stack([labels[i].to(device, non_blocking=True) for i in rows])
        losses.append(b_step(model, x, y, optimizer))
    return torch.stack(losses).tolist()


def _b_labels_one_by_one(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x = images[rows].to(device)
        y = torch.stack([labels[i].to(device) for i in rows])
        losses.append(b_step(model, x, y, optimizer))
    return torch.stack(losses).tolist()


def _b_by_item(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images[rows].to(device), labels[rows].to(device)
        losses.append(b_step(model, x, y, optimizer).item())
    return losses


def _b_all_each_step(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images.to(device)[rows], labels.to(device)[rows]
        losses.append(b_step(model, x, y, optimizer))
    return torch.stack(losses).tolist()


WRONG = {
    "each-sample": detective.loop_b,
    "as-many": _b_pinned,
    "labels-too": _b_labels_one_by_one,
    "all-each-step": _b_all_each_step,
    "waits-each-step": _b_by_item,
    "other-rows": b_in_order,
}
