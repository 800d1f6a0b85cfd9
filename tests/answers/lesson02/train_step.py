"""Known answers to 02.train_step: wrong ones by the diagnosis that each must get, right ones by a name."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from course_lessons.lesson02.train_step import train_step
from course_utils.exercises.edited import edited

_LABELS, _IMAGES = "labels = labels.to(device)", "images = images.to(device)"


def _on_cpu(model, optimizer, images, labels, device):
    return train_step(model, optimizer, images, labels, torch.device("cpu"))


def _detached(model, optimizer, images, labels, device):
    model.to(device)
    with torch.no_grad():
        return model(images.to(device)).cpu().numpy()


def _by_other_names(model, optimizer, images, labels, device):
    model = model.to(device)
    optimizer.zero_grad()
    logits = model(images.to(device))
    nn.CrossEntropyLoss()(logits, labels.to(device)).backward()
    optimizer.step()
    return np.array(logits.cpu().tolist(), dtype=np.float32)


WRONG = {
    "stays": _on_cpu,
    "round-trip": edited(train_step, {_LABELS: "", "(logits, labels)": "(logits.cpu(), labels)"}),
    "loss-on-host": edited(
        train_step,
        {_LABELS: "", "model(images)": "model(images).cpu()", "detach().cpu()": "detach()"},
    ),
    "sends-more": edited(train_step, {_IMAGES: f"images.to(device)\n{_IMAGES}"}),
    "too-early": edited(train_step, {"cpu()": 'to("cpu", non_blocking=True)'}),
    "tensor": edited(train_step, {".numpy()": ""}),
    "not-trained": _detached,
}
RIGHT = {"by other names": _by_other_names}
