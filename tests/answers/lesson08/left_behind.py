"""Known answers to 08.left_behind."""

import torch
from torch import nn

from course_lessons.lesson08.left_behind import TWINS, left_behind


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
        own = {
            k: v for k, v in vars(part).items() if k not in ("_parameters", "_buffers", "_modules")
        }
        for name, value in {**part._parameters, **part._buffers, **own}.items():
            if walk(value):
                found.add(f"{path}.{name}" if path else name)
    return sorted(found)


def _items(module, device):
    return [name + ".0" if "_kept" in name else name for name in left_behind(module, device)]


def _moves(module, device):
    names = left_behind(module, device)
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                setattr(part, name, torch.empty_like(value, device=device))
    return names


WRONG = {
    **TWINS,
    "type-only": {"t.device != device": "t.device.type != device.type"},
    "item-names": _items,
    "not-there": lambda module, device: [*left_behind(module, device), "zero"],
    "not-names": lambda module, device: [n.split(".") for n in left_behind(module, device)],
    "twice": lambda module, device: sorted(2 * left_behind(module, device)),
    "registered-lost": lambda module, device: [
        n for n in left_behind(module, device) if n != "mean"
    ],
    "attribute-lost": {"any(t.device": "len(tensors(value)) < 2 and any(t.device"},
    "moved": _moves,
}
RIGHT = {
    "by walking": _by_walking,
    "a tuple": lambda module, device: (*left_behind(module, device),),
}
