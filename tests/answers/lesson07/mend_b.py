"""Known answers to 07.mend_b."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from answers.lesson07 import stepped
from course_lessons.lesson07 import loops
from course_lessons.lesson07.mend_b import B_TWINS, mend_b
from course_lessons.shared.edited import edited


def _b_pinned(model, images, labels, order, optimizer, device):
    losses = []
    images, labels = images.pin_memory(), labels.pin_memory()
    for rows in order:
        x = torch.stack([images[i].to(device, non_blocking=True) for i in rows])
        y = torch.stack([labels[i].to(device, non_blocking=True) for i in rows])
        losses.append(stepped(F.cross_entropy(model(x), y), optimizer))
    return torch.stack(losses).tolist()


def _b_labels_one_by_one(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x = images[rows].to(device)
        y = torch.stack([labels[i].to(device) for i in rows])
        losses.append(stepped(F.cross_entropy(model(x), y), optimizer))
    return torch.stack(losses).tolist()


def _b_by_item(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images[rows].to(device), labels[rows].to(device)
        losses.append(stepped(F.cross_entropy(model(x), y), optimizer).item())
    return losses


def _b_looked_up_one_by_one(model, images, labels, order, optimizer, device):
    images, labels, losses = images.to(device), labels.to(device), []
    for rows in order:
        x = torch.stack([images[i] for i in rows.to(device)])
        losses.append(stepped(F.cross_entropy(model(x), labels[rows]), optimizer))
    return torch.stack(losses).tolist()


def _b_all_each_step(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x, y = images.to(device)[rows], labels.to(device)[rows]
        losses.append(stepped(F.cross_entropy(model(x), y), optimizer))
    return torch.stack(losses).tolist()


def _b_all_on_the_device(model, images, labels, order, optimizer, device):
    images, labels = images.to(device), labels.to(device)
    losses = []
    for rows in order:
        rows = rows.to(device)
        losses.append(stepped(F.cross_entropy(model(images[rows]), labels[rows]), optimizer))
    return torch.stack(losses).tolist()


def _b_stacked_on_the_host(model, images, labels, order, optimizer, device):
    losses = []
    for rows in order:
        x = torch.stack([images[i] for i in rows]).to(device)
        y = torch.stack([labels[i] for i in rows]).to(device)
        losses.append(stepped(F.cross_entropy(model(x), y), optimizer))
    return torch.stack(losses).tolist()


def _b_pinned_batches(model, images, labels, order, optimizer, device):
    images, labels = images.pin_memory(), labels.pin_memory()
    losses = []
    for rows in order:
        x = images[rows].to(device, non_blocking=True)
        y = labels[rows].to(device, non_blocking=True)
        losses.append(stepped(F.cross_entropy(model(x), y), optimizer))
    return [loss.item() for loss in losses]


def _b_on_the_host(model, images, labels, order, optimizer, device):
    losses = mend_b(model.to("cpu"), images, labels, order, optimizer, torch.device("cpu"))
    model.to(device)
    return losses


WRONG = {
    **B_TWINS,
    "each-sample": loops.loop_b,
    "as-many": _b_pinned,
    "labels-too": _b_labels_one_by_one,
    "all-each-step": _b_all_each_step,
    "waits-each-step": _b_by_item,
    "waits-often": _b_looked_up_one_by_one,
    "on-the-host": _b_on_the_host,
    "other-weights": edited(
        mend_b, {"[rows].to(device), labels": "[rows].half().float().to(device), labels"}
    ),
    "other-loss": edited(mend_b, {"images[rows].to": "images[rows - 1].to"}),
}
RIGHT = {
    "all on the device": _b_all_on_the_device,
    "stacked on the host": _b_stacked_on_the_host,
    "pinned batches": _b_pinned_batches,
}
