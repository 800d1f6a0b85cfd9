"""Known answers to 05.clipped_step: wrong ones by their diagnosis, right ones by a name."""

import torch

from course_lessons.lesson05.clipped_step import MISTAKES


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
WRONG = {
    **MISTAKES,
    "clips-scaled": (*MISTAKES["clips-scaled"], {_UNSCALE: _CLIP, _CLIP: _UNSCALE}),
    "steps-anyway": {"scaler.step(optimizer)": "optimizer.step()"},
}
RIGHT = {
    "by a scaled limit": _by_a_scaled_limit,
    "skips by hand": {"scaler.step(optimizer)": "if norm.isfinite():\n    optimizer.step()"},
}
