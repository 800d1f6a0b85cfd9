"""Known answers to 09.left_behind."""

import torch
from torch import nn

from course_lessons.lesson09.left_behind import MISTAKES, left_behind


def _by_walking(module, device):
    found = set()

    def walk(value):
        if isinstance(value, torch.Tensor):
            return value.device != device
        if isinstance(value, nn.Module):
            return any(walk(t) for t in (*value.parameters(), *value.buffers()))
        if isinstance(value, dict):
            return any([walk(v) for v in value.values()])
        return isinstance(value, (list, tuple)) and any([walk(v) for v in value])

    for path, part in module.named_modules():
        own = {k: v for k, v in vars(part).items() if k not in ("_parameters", "_buffers", "_modules")}
        for name, value in {**part._parameters, **part._buffers, **own}.items():
            if walk(value):
                found.add(f"{path}.{name}" if path else name)
    return sorted(found)


WRONG = {
    **MISTAKES,
    "type-only": {"t.device != device": "t.device.type != device.type"},
}
RIGHT = {
    "by walking": _by_walking,
    "a tuple": lambda module, device: (*left_behind(module, device),),
}
