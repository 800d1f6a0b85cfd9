"""Known answers to 08.mend_b."""

import torch

from course_lessons.lesson08 import loops
from course_lessons.lesson08.mend_b import B_MISTAKES, mend_b


def _b_on_the_host(model, images, labels, order, optimizer, device):
    losses = mend_b(model.to("cpu"), images, labels, order, optimizer, torch.device("cpu"))
    model.to(device)
    return losses


_FIRST, _BATCH = "losses = []", "images[rows].to(device), labels[rows].to(device)"
_PINNED = "losses = []\nimages, labels = images.pin_memory(), labels.pin_memory()"
_THERE = "losses = []\nimages, labels = images.to(device), labels.to(device)"
WRONG = {
    **B_MISTAKES,
    "each-sample": loops.loop_b,
    "labels-too": {"labels[rows].to(device)": "torch.stack([labels[i].to(device) for i in rows])"},
    "all-each-step": {_BATCH: "images.to(device)[rows], labels.to(device)[rows]"},
    "waits-each-step": {"loss.detach()": "loss.item()", "torch.stack(losses).tolist()": "losses"},
    "wrong-value": (
        _b_on_the_host,
        {"[rows].to(device), labels": "[rows].half().float().to(device), labels"},
    ),
}
RIGHT = {
    "all on the device": {
        _FIRST: _THERE,
        f"x, y = {_BATCH}": "rows = rows.to(device)\nx, y = images[rows], labels[rows]",
    },
    "stacked on the host": {
        "images[rows]": "torch.stack([images[i] for i in rows])",
        "labels[rows]": "torch.stack([labels[i] for i in rows])",
    },
    "pinned batches": {
        _FIRST: _PINNED,
        _BATCH: _BATCH.replace("device", "device, non_blocking=True"),
        "torch.stack(losses).tolist()": "[loss.item() for loss in losses]",
    },
}
