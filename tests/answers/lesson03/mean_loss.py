"""Known answers to 03.mean_loss: wrong ones by their diagnosis, right ones by a name."""

import copy

import torch
from torch.nn import functional as F

from course_lessons.lesson03.mean_loss import _MISTAKES, mean_loss


def _with_line_first(disturbance):
    """Return edits that put a line before the reference's first."""
    return {"was_training = model.training": f"{disturbance}\nwas_training = model.training"}


def _of_a_copy(model, batches):
    return mean_loss(copy.deepcopy(model), batches)


def _mode_by_mode(model, batches):
    modes = [part.training for part in model.modules()]
    model.eval()
    with torch.no_grad():
        each = [F.cross_entropy(model(x), y, reduction="none") for x, y in batches]
    for part, mode in zip(model.modules(), modes, strict=True):
        part.training = mode
    return torch.cat(each).mean().item()


WRONG = {
    **_MISTAKES,
    "train-mode": {"model.eval()": ""},
    "builds-graph": {"torch.inference_mode()": "torch.enable_grad()"},
    "mode-left": {"model.train(was_training)": ""},
    "gradients-off": (
        _with_line_first("model.requires_grad_(False)"),
        _with_line_first("torch.set_grad_enabled(False)"),
    ),
}
RIGHT = {
    "a copy": _of_a_copy,
    "mode by mode": _mode_by_mode,
}
