"""Known wrong answers to 04.clipped_step, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson04.clipped_step import (
    clip_divided_twice,
    clip_scaled,
    clip_without_zero,
    clipped_step,
    never_clip,
)
from course_utils.exercises.edited import edited


def _clip_then_unscale(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip_norm_of_scaled(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip_norm_after(loss, model, optimizer, scaler, max_norm):
    clipped_step(loss, model, optimizer, scaler, max_norm)
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm()


WRONG = {
    "clips-scaled": clip_scaled,
    "unscale-late": _clip_then_unscale,
    "never-clips": never_clip,
    "divided-twice": clip_divided_twice,
    "step-bypassed": edited(clipped_step, {"scaler.step(optimizer)": "optimizer.step()"}),
    "no-update": edited(clipped_step, {"scaler.update()": ""}),
    "piles-up": clip_without_zero,
    "scaled-norm": _clip_norm_of_scaled,
    "norm-after": _clip_norm_after,
}
