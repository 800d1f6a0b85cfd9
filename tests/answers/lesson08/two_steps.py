"""Known answers to 08.two_steps: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

import torch

from course_lessons.lesson08.two_steps import TWO_TWINS, two_steps
from course_utils.exercises.edited import edited


def _unscaling_first(model, x, y, loss_fn, optimizers, scaler, dtype):
    model.zero_grad()
    with torch.amp.autocast(x.device.type, dtype):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.unscale_(optimizer)
    for optimizer in reversed(optimizers):
        scaler.step(optimizer)
    scaler.update()
    return loss.detach().clone()


WRONG = {
    **TWO_TWINS,
    "not-scaled": edited(two_steps, {"scaler.scale(loss)": "loss"}),
    "no-update": edited(two_steps, {"scaler.update()": ""}),
    "no-autocast": edited(two_steps, {"dtype=dtype": "dtype=torch.bfloat16"}),
    "keeps-graph": edited(two_steps, {"loss.detach()": "loss"}),
    "other-step": edited(
        two_steps,
        {
            "for optimizer in optimizers:\n    scaler.step(optimizer)": "scaler.step(optimizers[0])\n"
            "optimizers[1].step()"
        },
    ),
}
RIGHT = {"unscaling first": _unscaling_first}
