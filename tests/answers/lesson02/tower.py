"""Known answers to 02.tower: wrong ones by their diagnosis, right ones by a name."""

from itertools import pairwise

import torch
from torch import nn

from course_lessons.lesson02.checking import second_device
from course_lessons.lesson02.tower import tower
from course_lessons.shared.edited import edited

_IN_A_LIST = edited(tower, {"nn.ModuleList(": "list("})


def _born_there(sizes):
    with torch.device(second_device()):
        return tower(sizes)


def _sequential(sizes):
    parts = [p for a, b in pairwise(sizes) for p in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def _moved_by_itself(sizes):
    """Return a tower whose layers are hidden in a list, with a ``to`` that moves them."""
    made = _IN_A_LIST(sizes)
    made.to = lambda device: [layer.to(device) for layer in made.layers] and made
    return made


def _made_in_forward(sizes):
    """Return a module that makes new layers in each forward pass."""
    made = nn.Module()
    made.forward = lambda x: tower(sizes).to(x.device)(x)
    return made


def _head_first(sizes):
    """Return a tower whose last layer is registered first."""
    made = tower(sizes)
    first = nn.Module()
    first.head, first.body = made.layers[-1], nn.ModuleList(list(made.layers)[:-1])
    first.forward = made.forward
    return first


def _tensors(sizes):
    """Return a tower that registers weights and biases, but no layers."""
    made = tower(sizes)
    kept = nn.Module()
    kept.w = nn.ParameterList([layer.weight for layer in made.layers])
    kept.b = nn.ParameterList([layer.bias for layer in made.layers])
    kept.forward = made.forward
    return kept


WRONG = {
    "relu-last": {"self.layers[-1](x)": "self.layers[-1](x).relu()"},
    "random": (
        {"x = layer(x).relu()": "x = nn.functional.dropout(layer(x).relu())"},
        _made_in_forward,
    ),
    "hidden": _IN_A_LIST,
    "moves-by-hand": (
        edited(
            _IN_A_LIST,
            {
                "layer(x)": "layer.to(x.device)(x)",
                "self.layers[-1]": "self.layers[-1].to(x.device)",
            },
        ),
        _moved_by_itself,
    ),
    "born-there": _born_there,
}
RIGHT = {"sequential": _sequential, "the last layer first": _head_first, "tensors": _tensors}
