"""Known wrong answers to 03.step_losses, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson03.step_losses import step_losses
from course_utils.exercises.edited import edited


def _losses_without_training(model, batches, optimizer):
    with torch.inference_mode():
        return torch.stack([F.cross_entropy(model(x), y) for x, y in batches]).tolist()


WRONG = {
    "reads-each-step": edited(
        step_losses, {"loss.detach()": "loss.item()", "torch.stack(losses).tolist()": "losses"}
    ),
    "reads-at-the-end": edited(step_losses, {"torch.stack(losses)": "torch.tensor(losses)"}),
    "not-floats": edited(step_losses, {"torch.stack(losses).tolist()": "losses"}),
    "weights": _losses_without_training,
}
