"""Known answers to 02.train_step: wrong ones by the diagnosis that each must get, right ones by a name."""

import numpy as np
import torch
from torch import nn

from course_lessons.lesson02.train_step import GIVES, LEARNS, train_step

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


_ZERO, _BACKWARD, _STEP = "optimizer.zero_grad()", "loss.backward()", "optimizer.step()"
_LOSS, _RETURN = "F.cross_entropy(logits, labels)", "logits.detach().cpu().numpy()"
WRONG = {
    **LEARNS,
    **GIVES,
    "no-step": _detached,
    "no-gradient": {_ZERO: _BACKWARD, _BACKWARD: _ZERO},
    "old-gradient": {_ZERO: _STEP, _BACKWARD: _ZERO, _STEP: _BACKWARD},
    "steps": {_STEP: f"{_STEP}\n{_STEP}\n{_STEP}"},
    "not-trained": {_LOSS: f"2 * {_LOSS}"},
    "other-logits": {_RETURN: "logits.detach().cpu().numpy().T"},
    "stays": _on_cpu,
    "round-trip": {_LABELS: "", "(logits, labels)": "(logits.cpu(), labels)"},
    "loss-on-host": {
        _LABELS: "",
        "model(images)": "model(images).cpu()",
        "detach().cpu()": "detach()",
    },
    "sends-more": {_IMAGES: f"images.to(device)\n{_IMAGES}"},
    "too-early": {"cpu()": 'to("cpu", non_blocking=True)'},
    "tensor": {".numpy()": ""},
    "changed-input": (
        {_IMAGES: f"images.sub_(images.mean())\n{_IMAGES}"},
        {_IMAGES: "images.data = images.to(device)"},
    ),
}
RIGHT = {"by other names": _by_other_names}
