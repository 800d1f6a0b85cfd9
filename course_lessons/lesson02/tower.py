"""The layers that stayed behind."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge

from .checking import counted_copies, equal, run_once, second


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
    for sizes in ([5, 4, 3], [7, 2], [6, 5, 4, 3]):
        module = judge.is_a(answer(list(sizes)), nn.Module, "a module")
        x = torch.randn(8, sizes[0])
        shapes = [shape for a, b in pairwise(sizes) for shape in ((b, a), (b,))]
        found = list(module.parameters())
        if found and found[0].device.type != "cpu":
            judge.no("born-there", seen=f"layers on {found[0].device}", expected="layers on cpu")
        numbers = f"sizes {sizes}: {sum(p.numel() for p in found)} numbers in parameters()"
        expected = f"{sum(int(np.prod(shape)) for shape in shapes)} numbers"
        if (given := [tuple(p.shape) for p in found]) != shapes:
            if given == shapes[::2]:
                judge.no("no-bias", seen=numbers, expected=expected)
            hidden = _what_is_hidden(module, x, device) if len(found) < len(shapes) else ""
            if hidden == "moves-by-hand" and found:
                hidden = "hidden"
            judge.no(hidden or "other-layers", seen=numbers, expected=expected)
        _judge_tower_values(module, found, x, judge)
        right = module(x).detach()
        module.to(device)
        got = run_once(module, x.to(device), "hidden", judge)
        if got.device != device or not equal(got, right):
            judge.no("other-values", seen=f"after .to(device): {got}", expected=right)


def _what_is_hidden(module: nn.Module, x: torch.Tensor, device: torch.device) -> str:
    """Say how layers that ``parameters()`` does not find show, or nothing where there are none."""
    module, x = module.to(device), x.to(device)
    try:
        with counted_copies() as counted:
            module(x)
    except RuntimeError as error:
        return "hidden" if "device" in str(error) else ""
    carried = counted.copies_to_device if counted else not list(module.parameters())
    return "moves-by-hand" if carried else ""


def _judge_tower_values(
    module: nn.Module, found: list[nn.Parameter], x: torch.Tensor, judge: Judge
) -> None:
    activations, always, never = x, x, x
    for weight, bias in zip(found[::2], found[1::2], strict=True):
        last = bias is found[-1]
        activations = F.linear(activations, weight, bias)
        activations = activations if last else activations.relu()
        always = F.linear(always, weight, bias).relu()
        never = F.linear(never, weight, bias)
    got = judge.is_a(module(x), torch.Tensor, "a tensor from forward()")
    for diagnosis, value in (("relu-last", always), ("no-relu", never)):
        if equal(got, value) and not equal(value, activations):
            judge.no(diagnosis, seen=got[0], expected=activations[0])
    if not equal(got, activations):
        judge.no("other-values", seen=got[0], expected=activations[0])


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
        "moves-by-hand": "It runs on the device now, because the layers are carried there by hand. But "
        "`parameters()` is still empty: an optimiser would train nothing, and a checkpoint would save nothing.",
        "no-bias": "All the layers are there, but without their biases: `nn.Linear(a, b)` has one.",
        "born-there": "The layers are made on a device already. `tower` has no `device`: make them as the stub does, "
        "and let `.to(device)` move them.",
        "other-layers": "These are not the layers that `sizes` describes: one for each pair of neighbours, in "
        "their order.",
        "relu-last": "There is a ReLU after the last layer too, so the network can give nothing below zero.",
        "no-relu": "The ReLU between the layers is gone.",
        "other-values": "The network computes something else than linear layers with a ReLU between them.",
    },
)
