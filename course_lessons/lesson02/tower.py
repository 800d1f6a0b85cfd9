"""The layers that stayed behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge

from .checking import equal, run_once, second


def tower(sizes):
    class Tower(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = layer(x).relu()
            return self.layers[-1](x)

    return Tower()


def _forward(step, last=lambda layer, x: layer(x)):
    """Return what a tower computes of its layers and a batch, each but the last used by ``step``."""

    def forward(layers, x):
        for layer in layers[:-1]:
            x = step(layer, x)
        return last(layers[-1], x)

    return forward


def _relu(layer, x):
    return layer(x).relu()


_RIGHT = _forward(_relu)
_TWINS = {
    "relu-last": _forward(_relu, _relu),
}
_SIZES = ([5, 4, 3], [7, 2], [6, 5, 4, 3], [4, 4, 4, 4])


def _check_tower(answer: Any, judge: Judge) -> None:
    device = second()
    runs = []
    torch.manual_seed(3)
    for sizes in _SIZES:
        module = judge.is_a(answer(list(sizes)), nn.Module, "a module")
        x = torch.randn(8, sizes[0])
        _judge_layers(module, sizes, x, device, judge)
        got = run_once(module, x, "born-there", judge)
        if not equal(module(x), got):
            judge.no("random", seen="two results for one batch", expected="one")
        runs.append((list(_towers(module, sizes)), x, got.detach()))
        right = module(x).detach()
        module.to(device)
        there = run_once(module, x.to(device), "hidden", judge)
        if there.device != device or not equal(there, right):
            judge.no(seen=f"after `.to(device)` a result on {there.device}")
    for diagnosis, twin in {"": _RIGHT, **_TWINS}.items():
        wrong = [(w, x, got) for w, x, got in runs if not _explains(_RIGHT, w, x, got)]
        if not wrong:
            return
        if diagnosis and all(_explains(twin, *run) for run in wrong):
            break
    else:
        diagnosis = "other-values"
    ways, x, got = wrong[0]
    judge.no(diagnosis, seen=got[0], expected=_RIGHT(ways[0], x)[0].detach())


def _explains(forward: Any, ways: Any, x: torch.Tensor, got: torch.Tensor) -> bool:
    """Whether the layers, in one of the orders that fit, give this result by ``forward``."""
    return any(equal(got, forward(layers, x).detach()) for layers in ways)


def _towers(module: nn.Module, sizes: list[int]) -> Iterator[list[Any]]:
    """Yield the layers that a module's parameters make, in each order that fits the sizes."""
    found = [p.detach().clone() for p in module.parameters()]
    shapes = [shape for a, b in pairwise(sizes) for shape in ((b, a), (b,))]
    for order in permutations(range(len(found))) if len(set(shapes)) < len(shapes) else (None,):
        chosen = [found[i] for i in order] if order else _by_shape(found, shapes)
        if [tuple(p.shape) for p in chosen] == shapes:
            yield [partial(_linear, w, b) for w, b in zip(chosen[::2], chosen[1::2], strict=True)]


def _by_shape(found: list[torch.Tensor], shapes: list[tuple[int, ...]]) -> list[torch.Tensor]:
    there = {tuple(p.shape): p for p in found}
    return [there[shape] for shape in shapes]


def _linear(weight: torch.Tensor, bias: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight, bias)


def _judge_layers(
    module: nn.Module, sizes: list[int], x: torch.Tensor, device: torch.device, judge: Judge
) -> None:
    """Judge which parameters the module finds, in whatever order."""
    shapes = [shape for a, b in pairwise(sizes) for shape in ((b, a), (b,))]
    found = list(module.parameters())
    if found and found[0].device.type != "cpu":
        judge.no("born-there", seen=f"layers on {found[0].device}", expected="layers on cpu")
    given = sorted(tuple(p.shape) for p in found)
    if given == sorted(shapes):
        return
    shown = {
        "seen": f"sizes {sizes}: {sum(p.numel() for p in found)} numbers in parameters()",
        "expected": f"{sum(int(np.prod(shape)) for shape in shapes)} numbers",
    }
    if given == sorted(shapes[::2]):
        judge.no(**shown)
    hidden = _what_is_hidden(module, x, device, judge) if len(found) < len(shapes) else ""
    if not hidden and len(set(shapes)) < len(shapes) and set(given) == set(shapes):
        judge.no(**shown)
    judge.no(hidden or "wrong-value", **shown)


def _what_is_hidden(module: nn.Module, x: torch.Tensor, device: torch.device, judge: Judge) -> str:
    """Say how layers that ``parameters()`` does not find show, or nothing where there are none."""
    try:
        got = run_once(module, x, "born-there", judge)
        again = module(x)
    except RuntimeError:  # the layers do not fit one another
        return ""
    if _trained_through(got) <= {id(p) for p in module.parameters()}:
        return ""
    if not equal(again, got):
        judge.no("random", seen="two results for one batch", expected="one")
    try:
        module.to(device)(x.to(device))
    except RuntimeError as error:
        return "hidden" if "device" in str(error) else ""
    return "moves-by-hand"


def _trained_through(got: torch.Tensor) -> set[int]:
    """The ids of the tensors that a backward pass from a result would reach."""
    ids, todo, seen = set(), [got.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            ids.add(id(node.variable))
        todo += [after for after, _ in node.next_functions]
    return ids


EXERCISE = Exercise(
    id="02.tower",
    title="The layers that stayed behind",
    task="`tower(sizes)` builds a network: a linear layer for each pair of neighbours in `sizes`, and a ReLU after "
    "each but the last. It works on the CPU. But `.to(device)` leaves its layers behind, and the optimiser does "
    "not find them. Mend it.",
    level=1,
    minutes=6,
    hints=(
        "Print `len(list(tower([5, 4, 3]).parameters()))`. What does a module know of the things in a Python "
        "list?",
        "`torch.nn` has a list of its own, which registers what it holds. Nothing else need change.",
    ),
    reference=tower,
    check_answer=_check_tower,
    why="What a module does not know, it cannot move, train or save. On a CPU this fault is silent: the network "
    "runs, and those layers never learn. `len(list(model.parameters()))` shows it in one line.",
    diagnoses={
        "hidden": "`parameters()` does not find all the layers. They are in a container that the module does "
        "not look into, so they are not moved either.",
        "moves-by-hand": "It runs on the device now, because your code carries the layers there. But `parameters()` does "
        "not find them all: an optimiser would not train the others, and a checkpoint would not save them.",
        "born-there": "The layers are made on a device already. `tower` has no `device`: make them as the stub does, "
        "and let `.to(device)` move them.",
        "random": "Two runs on the same batch gave two results: `forward` makes something at random, such as a new layer.",
        "relu-last": "There is a ReLU after the last layer too, so the network can give nothing below zero.",
    },
)
