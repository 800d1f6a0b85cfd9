"""Known answers to 02.tower: wrong ones by the diagnosis that each must get, right ones by a name."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from course_lessons.lesson02.checking import second
from course_lessons.lesson02.tower import tower
from course_utils.exercises.edited import edited

_IN_A_LIST = edited(tower, {"nn.ModuleList(": "list("})


def _born_there(sizes):
    with torch.device(second()):
        return tower(sizes)


def _sequential(sizes):
    parts = [p for a, b in pairwise(sizes) for p in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


WRONG = {
    "hidden": _IN_A_LIST,
    "moves-by-hand": edited(
        _IN_A_LIST,
        {"layer(x)": "layer.to(x.device)(x)", "self.layers[-1]": "self.layers[-1].to(x.device)"},
    ),
    "no-bias": edited(tower, {"nn.Linear(a, b)": "nn.Linear(a, b, bias=False)"}),
    "born-there": _born_there,
    "other-layers": lambda sizes: tower(sizes[1:]),
    "relu-last": edited(tower, {"self.layers[-1](x)": "self.layers[-1](x).relu()"}),
    "no-relu": edited(tower, {".relu()": ""}),
}
RIGHT = {"sequential": _sequential}
