"""Known answers to 04.accumulate: wrong ones by the diagnosis that each must get, right ones by a name."""

import torch

from course_lessons.lesson04.accumulate import MISTAKES, accumulate
from course_lessons.shared.edited import edited


def _by_shares(model, batches, loss_fn, optimizer, scaler, dtype):
    total = sum(x.shape[0] for x, _ in batches)
    for parameter in model.parameters():
        parameter.grad = None
    for x, y in batches:
        with torch.autocast(x.device.type, dtype):
            loss = loss_fn(model(x), y)
        scaler.scale(loss * (y.shape[0] / total)).backward()
    scaler.step(optimizer)
    scaler.update()


def _skips_by_hand(model, batches, loss_fn, optimizer, scaler, dtype):
    _unscaled(model, batches, loss_fn, optimizer, scaler, dtype)
    if all(p.grad.isfinite().all() for p in model.parameters()):
        optimizer.step()
    scaler.update()


_BACKWARD, _STEP = "scaler.scale(loss).backward()", "scaler.step(optimizer)\nscaler.update()"
_ZERO, _TOTAL = "optimizer.zero_grad()", "scaler.scale(total).backward()"
_unscaled = edited(accumulate, {_STEP: "scaler.unscale_(optimizer)"})
WRONG = {
    **MISTAKES,
    "updates": {_BACKWARD: f"{_BACKWARD}\nscaler.update()", "scaler.update()": ""},
    "graph-kept": {".backward()": ".backward(retain_graph=True)"},
}
RIGHT = {"by shares": _by_shares, "skips by hand": _skips_by_hand}
