"""Known answers to 02.train_step: wrong ones by the diagnosis that each must get, right ones by a name."""

import numpy as np
import torch
from torch import nn

from course_lessons.lesson02.train_step import MISTAKES, train_step

_LABELS, _IMAGES = "labels = labels.to(device)", "images = images.to(device)"


def _on_cpu(model, optimizer, images, labels, device):
    return train_step(model, optimizer, images, labels, torch.device("cpu"))


def _by_other_names(model, optimizer, images, labels, device):
    model = model.to(device)
    optimizer.zero_grad()
    logits = model(images.to(device))
    nn.CrossEntropyLoss()(logits, labels.to(device)).backward()
    optimizer.step()
    return np.array(logits.cpu().tolist(), dtype=np.float32)


WRONG = {
    **MISTAKES,
    "stays": _on_cpu,
    "loss-on-host": {
        _LABELS: "",
        "model(images)": "model(images).cpu()",
        "detach().cpu()": "detach()",
    },
    "too-early": {"cpu()": 'to("cpu", non_blocking=True)'},
    "changed-input": (
        {_IMAGES: f"images.sub_(images.mean())\n{_IMAGES}"},
        {_IMAGES: "images.data = images.to(device)"},
    ),
}
RIGHT = {"by other names": _by_other_names}
