"""Known answers to 05.accumulate: wrong ones by their diagnosis, right ones by a name."""

import torch

from course_lessons.lesson05.accumulate import MISTAKES


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


_BACKWARD = "scaler.scale(loss).backward()"
WRONG = {
    **MISTAKES,
    "updates": {_BACKWARD: f"{_BACKWARD}\nscaler.update()", "scaler.update()": ""},
    "graph-kept": {".backward()": ".backward(retain_graph=True)"},
}
RIGHT = {
    "by shares": _by_shares,
    "skips by hand": {
        "scaler.step(optimizer)": "scaler.unscale_(optimizer)\n"
        "if all(p.grad.isfinite().all() for p in model.parameters()):\n"
        "    optimizer.step()"
    },
}
