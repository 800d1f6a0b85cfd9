"""Known wrong answers to 04.amp_step, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson04.amp_step import amp_step, amp_without_zero
from course_utils.exercises.edited import edited


def _amp_backward_inside(model, x, y, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_half_model(model, x, y, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    loss = loss_fn(model.to(dtype)(x.to(dtype)), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _amp_loss_outside(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        outputs = model(x)
    loss = loss_fn(outputs, y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_item(model, x, y, loss_fn, optimizer, scaler, dtype):
    return amp_step(model, x, y, loss_fn, optimizer, scaler, dtype).item()


def _amp_own_scaler(model, x, y, loss_fn, optimizer, scaler, dtype):
    scaler = torch.amp.GradScaler(x.device.type)
    return amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)


def _amp_leaves_out(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    if loss.isfinite():
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return loss.detach()


WRONG = {
    "half-model": _amp_half_model,
    "named-device": edited(amp_step, {"x.device.type": '"cuda"'}),
    "loss-outside": _amp_loss_outside,
    "backward-inside": _amp_backward_inside,
    "step-bypassed": edited(amp_step, {"scaler.step(optimizer)": "optimizer.step()"}),
    "not-scaled": edited(amp_step, {"scaler.scale(loss)": "loss"}),
    "own-scaler": _amp_own_scaler,
    "reads-scale": edited(amp_step, {"scaler.scale(loss)": "(loss * scaler.get_scale())"}),
    "zeroed-late": edited(
        amp_step,
        {
            "optimizer.zero_grad()": ("scaler.scale(loss).backward()\noptimizer.zero_grad()"),
            "scaler.scale(loss).backward()": "",
        },
    ),
    "scale-off": _amp_leaves_out,
    "no-update": edited(amp_step, {"scaler.update()": ""}),
    "piles-up": amp_without_zero,
    "waits": _amp_item,
    "keeps-graph": edited(amp_step, {"loss.detach()": "loss"}),
    "scaled-loss": edited(
        amp_step,
        {
            "loss = loss_fn(model(x), y)": "loss = scaler.scale(loss_fn(model(x), y))",
            "scaler.scale(loss)": "loss",
        },
    ),
}
