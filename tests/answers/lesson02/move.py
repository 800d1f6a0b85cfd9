"""Known answers to 02.move: wrong ones by the diagnosis that each must get, right ones by a name."""

import torch

from course_lessons.lesson02.move import Sample, move
from course_lessons.shared.edited import edited

_DICT = "return {key: move(value, device) for key, value in batch.items()}"
_NAMED = """\
if hasattr(batch, "_fields"):
    return type(batch)(*(move(value, device) for value in batch))"""
_SEQUENCE = """\
if isinstance(batch, (list, tuple)):
    return type(batch)(move(value, device) for value in batch)"""


def _one_level(batch, device):
    def place(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if isinstance(batch, dict):
        return {key: place(value) for key, value in batch.items()}
    if isinstance(batch, Sample):
        return Sample(*map(place, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(place, batch))
    return place(batch)


def _by_duck(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return type(batch)((k, _by_duck(v, device)) for k, v in batch.items())
    if isinstance(batch, tuple) and type(batch) is not tuple:
        return batch._replace(**{k: _by_duck(v, device) for k, v in batch._asdict().items()})
    if isinstance(batch, (tuple, list)):
        return type(batch)([_by_duck(v, device) for v in batch])
    return batch


_TENSOR = "return batch.to(device)"
WRONG = {
    "wrong-value": {_TENSOR: "return torch.zeros_like(batch, device=device)"},
    "stays": {"return batch.to(device)": "batch.to(device)"},
    "one-level": (
        _one_level,
        edited(
            move,
            {"*(move(value, device) for": "*(by_duck(value, device) for"},
            by_duck=lambda value, device: value.to(device) if hasattr(value, "to") else value,
        ),
        {"*(move(value, device) for value in batch)": "move(batch[0], device), *batch[1:]"},
    ),
    "namedtuple": {
        _NAMED: """\
if isinstance(batch, tuple):
    return tuple(move(value, device) for value in batch)"""
    },
    "not-entered": {"(list, tuple)": "list"},
    "strings": {
        _SEQUENCE: """\
if hasattr(batch, "__iter__"):
    kind = type(batch) if isinstance(batch, tuple) else list
    return kind(value if len(batch) == 1 else move(value, device) for value in batch)"""
    },
    "changed-input": {
        _DICT: """\
for key in batch:
    batch[key] = move(batch[key], device)
return batch"""
    },
}
RIGHT = {
    "by another road": _by_duck,
    "a copy of each tensor": {_TENSOR: "return batch.to(device, copy=True)"},
    "a tensor like it, filled": {
        _TENSOR: "return torch.empty_like(batch, device=device).copy_(batch)"
    },
}
