"""Known wrong answers to 04.accumulate, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson04.accumulate import (
    accumulate_by_batches,
    accumulate_undivided,
    accumulate_without_zero,
    accumulate_zero_inside,
)
from course_lessons.lesson04.amp_step import amp_step


def _accumulate_step_each(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def _accumulate_update_each(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
        scaler.update()
    scaler.step(optimizer)


def _accumulate_joined(model, batches, loss_fn, optimizer, scaler, dtype):
    x, y = (torch.cat(part) for part in zip(*batches, strict=True))
    amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)


def _accumulate_one_backward(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    total = 0
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            total = total + loss_fn(model(x), y) * len(y) / count
    scaler.scale(total).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_backward_inside(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def _accumulate_mended(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
        for parameter in model.parameters():
            parameter.grad.nan_to_num_(0.0)
    scaler.step(optimizer)
    scaler.update()


def _accumulate_finite(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        if loss.isfinite():
            scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


WRONG = {
    "by-batches": accumulate_by_batches,
    "sum-of-means": accumulate_undivided,
    "last-only": accumulate_zero_inside,
    "steps": _accumulate_step_each,
    "updates": _accumulate_update_each,
    "large-batch": _accumulate_joined,
    "one-backward": _accumulate_one_backward,
    "left-out": _accumulate_finite,
    "overflow-kept": _accumulate_mended,
    "backward-inside": _accumulate_backward_inside,
    "piles-up": accumulate_without_zero,
}
