"""The layers that stayed behind."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_utils.exercises import Exercise

from .checking import equal, run_once, second_device


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


def _check_answer(answer, judge):
    """Check the parameters' shapes and devices, and the outputs on the CPU and on another device."""
    device = second_device()
    torch.manual_seed(3)
    for sizes in ([5, 4, 3], [7, 2], [6, 5, 4, 3], [4, 4, 4, 4]):
        module = judge.is_a(answer(list(sizes)), nn.Module, _("a module"))
        parameters, x = list(module.parameters()), torch.randn(8, sizes[0])
        if parameters and parameters[0].device.type != "cpu":
            seen = _("layers on {device}").format(device=parameters[0].device)
            judge.no("born-there", seen=seen, expected=_("layers on cpu"))
        got = run_once(module, x, "born-there", judge)
        if not equal(module(x), got):
            judge.no("random", seen=_("two results for one batch"), expected=_("one"))
        shapes = sorted(shape for a, b in pairwise(sizes) for shape in ((b, a), (b,)))
        found = sorted(tuple(p.shape) for p in parameters)
        if found != shapes:
            diagnosis = _diagnose_hidden_layers(module, x, device)
            judge.expect(_("sizes {sizes}: shapes").format(sizes=sizes), found, shapes, diagnosis)
        if len(set(sizes)) == len(sizes):  # no two layers of one shape
            right = _expected_output(module, sizes, x)
            if not equal(got, right):
                diagnosis = "relu-last" if equal(got, right.relu()) else "wrong-value"
                judge.no(diagnosis, seen=got[0].detach(), expected=right[0])
        on_device = run_once(module.to(device), x.to(device), "hidden", judge)
        if on_device.device != device or not equal(on_device, got):
            judge.no(seen=_("after `.to(device)` a result on {device}").format(device=on_device.device))


def _expected_output(module, sizes, x):
    """Return the right output for ``x``, from a module's own parameters, found by their shapes.

    All widths in ``sizes`` must differ.
    """
    by_shape = {tuple(p.shape): p.detach() for p in module.parameters()}
    for a, b in pairwise(sizes):
        x = F.linear(x if a == sizes[0] else x.relu(), by_shape[b, a], by_shape[(b,)])
    return x


def _diagnose_hidden_layers(module, x, device):
    """Return the diagnosis of a module whose parameters have wrong shapes."""
    if not module.requires_grad_(False)(x).requires_grad:  # it has no layers that it hides
        return "wrong-value"
    try:
        module.to(device)(x.to(device))
    except RuntimeError as error:
        return "hidden" if "device" in str(error) else "wrong-value"
    return "moves-by-hand"


EXERCISE = Exercise(
    id="02.tower",
    title="The layers that stayed behind",
    task="`tower(sizes)` builds a network: a linear layer for each pair of neighbours in `sizes`, and a "
    "ReLU after each but the last. It works on the CPU. But `.to(device)` leaves its layers behind, and "
    "`parameters()` doesn't list them, so an optimiser wouldn't train them. Fix it.",
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
        "Here a dict has the same fault, and a container of `torch.nn` fixes it.\n\n"
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
    check_answer=_check_answer,
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
