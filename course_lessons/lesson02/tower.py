"""The layers that stayed behind."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

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


def _check_tower(answer: Any, judge: Judge) -> None:
    device = second()
    torch.manual_seed(3)
    for sizes in ([5, 4, 3], [7, 2], [6, 5, 4, 3], [4, 4, 4, 4]):
        module = judge.is_a(answer(list(sizes)), nn.Module, "a module")
        x = torch.randn(8, sizes[0])
        _judge_layers(module, sizes, x, device, judge)
        got = run_once(module, x, "born-there", judge)
        if not equal(module(x), got):
            judge.no("random", seen="two results for one batch", expected="one")
        if len(set(sizes)) == len(sizes):  # no two layers of one shape
            right = _computed(module, sizes, x)
            if not equal(got, right):
                told = "relu-last" if equal(got, right.relu()) else "wrong-value"
                judge.no(told, seen=got[0].detach(), expected=right[0])
        module.to(device)
        there = run_once(module, x.to(device), "hidden", judge)
        if there.device != device or not equal(there, got):
            judge.no(seen=f"after `.to(device)` a result on {there.device}")


def _computed(module: nn.Module, sizes: list[int], x: torch.Tensor) -> torch.Tensor:
    """Return what a right tower computes with the parameters of a module."""
    found = {tuple(p.shape): p.detach() for p in module.parameters()}
    for a, b in pairwise(sizes):
        x = F.linear(x if a == sizes[0] else x.relu(), found[b, a], found[(b,)])
    return x


def _judge_layers(
    module: nn.Module, sizes: list[int], x: torch.Tensor, device: torch.device, judge: Judge
) -> None:
    """Judge which parameters the module finds, in whatever order."""
    shapes = [shape for a, b in pairwise(sizes) for shape in ((b, a), (b,))]
    found = list(module.parameters())
    if found and found[0].device.type != "cpu":
        judge.no("born-there", seen=f"layers on {found[0].device}", expected="layers on cpu")
    if sorted(tuple(p.shape) for p in found) == sorted(shapes):
        return
    hidden = _what_is_hidden(module, x, device, judge) if len(found) < len(shapes) else ""
    judge.no(
        hidden or "wrong-value",
        seen=f"sizes {sizes}: {sum(p.numel() for p in found)} numbers in parameters()",
        expected=f"{sum(math.prod(shape) for shape in shapes)} numbers",
    )


def _what_is_hidden(module: nn.Module, x: torch.Tensor, device: torch.device, judge: Judge) -> str:
    """Say how layers that ``parameters()`` does not find show, or nothing where there are none."""
    try:
        got = run_once(module.requires_grad_(False), x, "born-there", judge)
        again = module(x)
    except RuntimeError:  # the layers do not fit one another
        return ""
    if not got.requires_grad:
        return ""
    if not equal(again, got):
        judge.no("random", seen="two results for one batch", expected="one")
    try:
        module.to(device)(x.to(device))
    except RuntimeError as error:
        return "hidden" if "device" in str(error) else ""
    return "moves-by-hand"


EXERCISE = Exercise(
    id="02.tower",
    title="The layers that stayed behind",
    task="`tower(sizes)` builds a network: a linear layer for each pair of neighbours in `sizes`, and a ReLU "
    "after each but the last. It works on the CPU. But `.to(device)` leaves its layers behind, and the "
    "optimiser does not find them. Mend it.",
    level=1,
    minutes=6,
    hints=(
        "Delete the `todo()` line, run the cell, and print `len(list(tower([5, 4, 3]).parameters()))`. "
        "How many should two layers have, with a weight and a bias each? What does a module know about "
        "the things in a Python list?",
        "A module knows the parameters, buffers and modules that you assign to its attributes. It "
        "doesn't look into a Python list, so `.to(device)` passes those layers by. `torch.nn` has a "
        "list of its own, which registers what it holds. You can loop over it and slice it too, so "
        "`forward` can stay as it is.",
        "Here a dict has the same fault, and a container of `torch.nn` mends it.\n\n"
        """```python
class Heads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = {"age": torch.nn.Linear(8, 1)}
        self.known = torch.nn.ModuleDict({"kind": torch.nn.Linear(8, 2)})

print([name for name, _ in Heads().named_parameters()])  # only those of known
```""",
    ),
    reference=tower,
    check_answer=_check_tower,
    why="What a module doesn't know, it can't move, train or save, and on a CPU you may get no error "
    "at all, because the network runs and the layers in the list just never learn. "
    "`len(list(model.parameters()))` shows you the fault in one line.",
    diagnoses={
        "hidden": "`parameters()` does not find all the layers. They are in a container that the module does "
        "not look into, so they are not moved either.",
        "moves-by-hand": "It runs on the device now, because your code carries the layers there. But "
        "`parameters()` does not find them all: an optimiser would not train the others, and a checkpoint "
        "would not save them.",
        "born-there": "The layers are made on a device already. `tower` has no `device`: make them as the "
        "stub does, and let `.to(device)` move them.",
        "random": "Two runs on the same batch gave two results: `forward` makes something at random, such as "
        "a new layer.",
        "relu-last": "There is a ReLU after the last layer too, so the network can give nothing below zero.",
    },
)
