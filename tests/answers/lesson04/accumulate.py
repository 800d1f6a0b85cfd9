"""Known wrong answers to 04.accumulate, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson04.accumulate import (
    accumulate,
    accumulate_by_batches,
    accumulate_undivided,
    accumulate_without_zero,
    accumulate_zero_inside,
)
from course_lessons.lesson04.amp_step import amp_step
from course_utils.exercises.edited import edited


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


WRONG = {
    "by-batches": accumulate_by_batches,
    "sum-of-means": accumulate_undivided,
    "last-only": accumulate_zero_inside,
    "steps": edited(
        accumulate,
        {
            ("scaler.step(optimizer)\nscaler.update()"): (
                "    scaler.step(optimizer)\n    scaler.update()"
            )
        },
    ),
    "updates": edited(
        accumulate,
        {
            "scaler.scale(loss).backward()": ("scaler.scale(loss).backward()\nscaler.update()"),
            "scaler.update()": "",
        },
    ),
    "large-batch": _accumulate_joined,
    "one-backward": _accumulate_one_backward,
    "left-out": edited(
        accumulate,
        {
            "scaler.scale(loss).backward()": (
                "if loss.isfinite():\n    scaler.scale(loss).backward()"
            )
        },
    ),
    "overflow-kept": edited(
        accumulate,
        {
            "scaler.scale(loss).backward()": (
                "scaler.scale(loss).backward()\n"
                "for parameter in model.parameters():\n"
                "    parameter.grad.nan_to_num_(0.0)"
            )
        },
    ),
    "backward-inside": edited(
        accumulate, {"scaler.scale(loss).backward()": "    scaler.scale(loss).backward()"}
    ),
    "piles-up": accumulate_without_zero,
}
