"""Known answers to 09.two_steps."""

import torch


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


RIGHT = {"unscaling first": _unscaling_first}
