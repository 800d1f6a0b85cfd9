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


_BACKWARD = "scaler.scale(loss).backward()"
WRONG = {
    **TWO_TWINS,
    "several-backwards": {
        _BACKWARD: "",
        "scaler.step(optimizer)": f"{_BACKWARD[:-1]}retain_graph=True)\nscaler.step(optimizer)",
    },
    "not-scaled": {"scaler.scale(loss)": "loss"},
    "no-update": {"scaler.update()": ""},
    "nothing-stepped": {"scaler.step(optimizer)": "optimizer.step()"},
    "no-gradients": {"scaler.step(optimizer)": "scaler.step(optimizer)\nmodel.zero_grad()"},
    "no-autocast": {"dtype=dtype": "dtype=torch.bfloat16"},
    "keeps-graph": {"loss.detach()": "loss"},
    "scaled-loss": {_BACKWARD: "loss = scaler.scale(loss)\nloss.backward()"},
    "other-loss": {"loss.detach()": "2 * loss.detach()"},
    "other-scale": {
        "with torch.autocast": "scaler = torch.amp.GradScaler('cpu')\nwith torch.autocast"
    },
    "other-step": {
        _BACKWARD: f"{_BACKWARD}\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    },
}
RIGHT = {"unscaling first": _unscaling_first}
