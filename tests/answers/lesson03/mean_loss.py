"""Known wrong answers to 03.mean_loss, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson03.mean_loss import mean_loss
from course_utils.exercises.edited import edited


def _with(part, other):
    return edited(mean_loss, {part: other})


def _after(disturbance):
    return _with("was_training = model.training", f"{disturbance}\nwas_training = model.training")


WRONG = {
    "train-mode": _with("model.eval()", ""),
    "builds-graph": _with("torch.inference_mode()", "torch.enable_grad()"),
    "ragged-mean": edited(
        mean_loss,
        {', reduction="sum"': "", "total.item() / count": "total.item() / len(batches)"},
    ),
    "mode-left": _with("model.train(was_training)", ""),
    "gradients-off": (
        _after("model.requires_grad_(False)"),
        _after("torch.set_grad_enabled(False)"),
    ),
}
