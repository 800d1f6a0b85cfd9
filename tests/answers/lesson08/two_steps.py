"""Known answers to 08.two_steps: wrong ones by the diagnosis that each must get, and a right one."""

import torch

from course_lessons.lesson08.two_steps import TWO_TWINS


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
}
RIGHT = {"unscaling first": _unscaling_first}
