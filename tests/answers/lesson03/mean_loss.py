"""Known answers to 03.mean_loss: wrong ones by the diagnosis that each must get, right ones by a name."""

import copy

import torch
from torch.nn import functional as F

from course_lessons.lesson03.mean_loss import _MISTAKES, mean_loss
from course_lessons.shared.edited import edited
from course_utils.exercises.forms import as_tuple


def _after(disturbance):
    return {"was_training = model.training": f"{disturbance}\nwas_training = model.training"}


def _evaluating(mistake):
    """A known mistake, in eval mode and without a graph."""

    def answer(model, batches):
        with torch.inference_mode():
            return mistake(copy.deepcopy(model).eval(), batches)

    return answer


def _mode_by_mode(model, batches):
    modes = [part.training for part in model.modules()]
    model.eval()
    with torch.no_grad():
        each = [F.cross_entropy(model(x), y, reduction="none") for x, y in batches]
    for part, mode in zip(model.modules(), modes, strict=True):
        part.training = mode
    return torch.cat(each).mean().item()


WRONG = {
    **{name: tuple(map(_evaluating, as_tuple(mistake))) for name, mistake in _MISTAKES.items()},
    "train-mode": {"model.eval()": ""},
    "builds-graph": {"torch.inference_mode()": "torch.enable_grad()"},
    "mode-left": {"model.train(was_training)": ""},
    "gradients-off": (
        _after("model.requires_grad_(False)"),
        _after("torch.set_grad_enabled(False)"),
    ),
}
RIGHT = {
    "a copy": _evaluating(edited(mean_loss, {"model.eval()": ""})),
    "mode by mode": _mode_by_mode,
}
