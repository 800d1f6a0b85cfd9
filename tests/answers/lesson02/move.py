"""Known answers to 02.move: wrong ones by their diagnosis, right ones by a name."""

import torch

_SEQUENCE = """\
if isinstance(batch, (list, tuple)):
    return type(batch)(move(value, device) for value in batch)"""
_ANYTHING = """\
if hasattr(batch, "__iter__"):
    kind = type(batch) if isinstance(batch, tuple) else list
    return kind(value if len(batch) == 1 else move(value, device) for value in batch)"""
_TENSOR = "return batch.to(device)"


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


WRONG = {
    "wrong-value": {_TENSOR: "return torch.zeros_like(batch, device=device)"},
    "stays": {_TENSOR: "batch.to(device)"},
    "one-level": {"*(move(value, device) for value in batch)": "move(batch[0], device), *batch[1:]"},
    "namedtuple": {
        "type(batch)(*(move(value, device) for value in batch))": "tuple(map(move, batch, [device] * 2))"
    },
    "not-entered": {"(list, tuple)": "list"},
    "strings": {_SEQUENCE: _ANYTHING},
    "changed-input": {
        "return {key: move(value, device) for key, value in batch.items()}": """\
batch.update({key: move(value, device) for key, value in batch.items()})
return batch"""
    },
}
RIGHT = {
    "by another road": _by_duck,
    "a copy of each tensor": {_TENSOR: "return batch.to(device, copy=True)"},
    "a tensor like it, filled": {_TENSOR: "return torch.empty_like(batch, device=device).copy_(batch)"},
}
