"""Known answers to 04.clipped_step: wrong ones by the diagnosis that each must get, right ones by a name."""

from __future__ import annotations

import torch

from course_lessons.lesson04.clipped_step import TWINS, clipped_step
from course_utils.exercises.edited import edited


def _norm_after(loss, model, optimizer, scaler, max_norm):
    clipped_step(loss, model, optimizer, scaler, max_norm)
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm()


def _by_a_scaled_limit(loss, model, optimizer, scaler, max_norm):
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm * scale)
    scaler.step(optimizer)
    scaler.update()
    return norm.item() / scale


_UNSCALE = "scaler.unscale_(optimizer)"
_CLIP = "norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)"
_SCALED_NORM = _CLIP.replace("max_norm", 'float("inf")')
WRONG = {
    **TWINS,
    "clips-scaled": (
        TWINS["clips-scaled"],
        edited(TWINS["clips-scaled"], {_CLIP: f"{_CLIP} / scaler.get_scale()"}),
    ),
    "unscale-late": edited(clipped_step, {_UNSCALE: _CLIP, _CLIP: _UNSCALE}),
    "step-bypassed": edited(clipped_step, {"scaler.step(optimizer)": "optimizer.step()"}),
    "no-update": edited(clipped_step, {"scaler.update()": ""}),
    "scaled-norm": edited(
        clipped_step,
        {_UNSCALE: f"{_SCALED_NORM}\n{_UNSCALE}", _CLIP: _CLIP.removeprefix("norm = ")},
    ),
    "norm-after": _norm_after,
}
RIGHT = {"by a scaled limit": _by_a_scaled_limit}
