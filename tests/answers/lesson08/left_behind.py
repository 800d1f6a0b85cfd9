"""Known answers to 08.left_behind."""

from __future__ import annotations

import torch
from torch import nn

from course_lessons.lesson08.left_behind import left_behind
from course_utils.exercises.edited import edited


def _registered(module, device):
    named = [*module.named_parameters(), *module.named_buffers()]
    return sorted(name for name, t in named if t.device != device)


def _by_walking(module, device):
    found = set()

    def walk(value):
        if isinstance(value, torch.Tensor):
            return value.device != device
        if isinstance(value, nn.Module):
            return any(t.device != device for t in value.state_dict(keep_vars=True).values())
        if isinstance(value, dict):
            return any([walk(v) for v in value.values()])
        return isinstance(value, (list, tuple)) and any([walk(v) for v in value])

    for path, part in module.named_modules():
        own = {
            k: v for k, v in vars(part).items() if k not in ("_parameters", "_buffers", "_modules")
        }
        for name, value in {**part._parameters, **part._buffers, **own}.items():
            if walk(value):
                found.add(f"{path}.{name}" if path else name)
    return sorted(found)


_OWN = 'name not in ("_parameters", "_buffers", "_modules")'

WRONG = {
    "registered-only": _registered,
    "no-buffers": edited(left_behind, {", *module.named_buffers()": ""}),
    "containers": edited(left_behind, {"isinstance(value, dict)": "False", "(list, tuple)": "()"}),
    "private": edited(left_behind, {_OWN: 'not name.startswith("_")'}),
    "torchs-own": edited(left_behind, {_OWN: "True"}),
}
RIGHT = {"by walking": _by_walking}
