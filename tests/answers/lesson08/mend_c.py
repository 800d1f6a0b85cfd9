"""Known answers to 08.mend_c."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from answers.lesson08 import stepped
from course_lessons.lesson08 import loops


def _c_with_loader_options(**options: Any) -> Callable[..., Any]:
    """Return an answer that makes the loader with these options."""

    def mend_c(model, make_loader, epochs, optimizer, device):
        losses = []
        loader = make_loader(**options)
        for _ in range(epochs):
            for x, y in loader:
                x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                losses.append(stepped(F.cross_entropy(model(x), y), optimizer))
        return torch.stack(losses).tolist()

    return mend_c


def _c_loads_first(model, make_loader, epochs, optimizer, device):
    losses = []
    batches = [batch for _ in range(epochs) for batch in make_loader()]
    for x, y in batches:
        losses.append(_c_step(model, x, y, optimizer, device))
    return torch.stack(losses).tolist()


def _c_step(model, x, y, optimizer, device):
    """Copy a batch to the device and make an optimiser step."""
    return stepped(F.cross_entropy(model(x.to(device)), y.to(device)), optimizer)


def _c_kept_on_the_device(model, make_loader, epochs, optimizer, device):
    kept = [(x.to(device), y.to(device)) for x, y in make_loader()]
    losses = [stepped(F.cross_entropy(model(x), y), optimizer) for _ in range(epochs) for x, y in kept]
    return torch.stack(losses).tolist()


def _c_read_once_an_epoch(model, make_loader, epochs, optimizer, device):
    loader = make_loader(num_workers=4, persistent_workers=True)
    losses = []
    for _ in range(epochs):
        epoch = [_c_step(model, x, y, optimizer, device) for x, y in loader]
        losses += torch.stack(epoch).tolist()
    return losses


WRONG = {
    "in-line": (loops.loop_c, _c_with_loader_options()),
    "only-pinned": _c_with_loader_options(pin_memory=True),
    "loads-first": _c_loads_first,
    "workers-restart": _c_with_loader_options(num_workers=4, pin_memory=True),
    "too-few-workers": _c_with_loader_options(num_workers=1, persistent_workers=True),
    "wrong-value": (
        _c_with_loader_options(num_workers=12, persistent_workers=True),
        {"optimizer.step()": "optimizer.step()\ntorch.accelerator.synchronize(device)"},
    ),
}
RIGHT = {
    "two workers": {"num_workers=4": "2"},
    "pinned, three workers": _c_with_loader_options(num_workers=3, pin_memory=True, persistent_workers=True),
    "kept on the device": _c_kept_on_the_device,
    "read once an epoch": _c_read_once_an_epoch,
}
