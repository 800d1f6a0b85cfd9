"""Known wrong answers to 04.amp_step, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson04.amp_step import amp_step, amp_without_zero


def _amp_bare_step(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    optimizer.step()
    scaler.update()
    return loss.detach()


def _amp_without_update(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    return loss.detach()


def _amp_without_scaler(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_backward_inside(model, x, y, loss_fn, optimizer, scaler, dtype):
    optimizer.zero_grad()
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_for_cuda(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast("cuda", dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
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


def _amp_keeps_graph(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def _amp_item(model, x, y, loss_fn, optimizer, scaler, dtype):
    return amp_step(model, x, y, loss_fn, optimizer, scaler, dtype).item()


def _amp_scaled_loss(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = scaler.scale(loss_fn(model(x), y))
    optimizer.zero_grad()
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_own_scaler(model, x, y, loss_fn, optimizer, scaler, dtype):
    scaler = torch.amp.GradScaler(x.device.type)
    return amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)


def _amp_scales_by_hand(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    (loss * scaler.get_scale()).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _amp_zeroes_late(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    scaler.scale(loss).backward()
    optimizer.zero_grad()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


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
    "named-device": _amp_for_cuda,
    "loss-outside": _amp_loss_outside,
    "backward-inside": _amp_backward_inside,
    "step-bypassed": _amp_bare_step,
    "not-scaled": _amp_without_scaler,
    "own-scaler": _amp_own_scaler,
    "reads-scale": _amp_scales_by_hand,
    "zeroed-late": _amp_zeroes_late,
    "scale-off": _amp_leaves_out,
    "no-update": _amp_without_update,
    "piles-up": amp_without_zero,
    "waits": _amp_item,
    "keeps-graph": _amp_keeps_graph,
    "scaled-loss": _amp_scaled_loss,
}
