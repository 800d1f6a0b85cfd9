"""Known wrong answers to 02.tower, by the diagnosis that each must get."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import nn

from course_lessons.lesson02.checking import second
from course_lessons.lesson02.tower import tower


def _tower_of(container: Any, run: Any = lambda layer, x: layer(x)) -> Any:
    def tower(sizes):
        class Tower(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = container(nn.Linear(a, b) for a, b in pairwise(sizes))

            def forward(self, x):
                for layer in self.layers[:-1]:
                    x = run(layer, x).relu()
                return run(self.layers[-1], x)

        return Tower()

    return tower


def _tower_without_bias(sizes):
    layers = [nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU())))[:-1]


def _tower_born_there(sizes):
    with torch.device(second()):
        return tower(sizes)


def _tower_too_short(sizes):
    return tower(sizes[1:])


def _tower_relu_last(sizes):
    return nn.Sequential(
        *(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU()))
    )


def _tower_no_relu(sizes):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes)))


WRONG = {
    "hidden": _tower_of(list),
    "moves-by-hand": _tower_of(list, lambda layer, x: layer.to(x.device)(x)),
    "no-bias": _tower_without_bias,
    "born-there": _tower_born_there,
    "other-layers": _tower_too_short,
    "relu-last": _tower_relu_last,
    "no-relu": _tower_no_relu,
}
