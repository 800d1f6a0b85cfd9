"""Known wrong answers to 08.fit_mixed, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F


def _fit_with(
    autocast: Callable[[Any], Any] | None = None,
    dtype_of: Callable[[torch.device], torch.dtype] = lambda d: (
        torch.bfloat16 if d.type == "cpu" else torch.float16
    ),
    scales: Callable[[torch.dtype], bool] = lambda dtype: dtype == torch.float16,
    each: bool = False,
    bare: bool = False,
    zero: bool = True,
) -> Callable[..., Any]:
    """The training with one thing done otherwise."""

    def fit_mixed(model, batches, optimizer):
        device = next(model.parameters()).device
        dtype = dtype_of(device)
        scaler = torch.amp.GradScaler(device.type, enabled=scales(dtype))
        for x, y in batches:
            if each:
                scaler = torch.amp.GradScaler(device.type, enabled=scales(dtype))
            block = autocast(device) if autocast else torch.autocast(device.type, dtype=dtype)
            with block:
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            if zero:
                optimizer.zero_grad()
            scaler.scale(loss).backward()
            if bare:
                scaler.unscale_(optimizer)
                optimizer.step()
            else:
                scaler.step(optimizer)
            scaler.update()

    return fit_mixed


def _old_autocast(device: torch.device) -> Any:
    return torch.cuda.amp.autocast()


def _fit_half_model(model, batches, optimizer):
    model.bfloat16()
    for x, y in batches:
        device = next(model.parameters()).device
        loss = F.cross_entropy(model(x.to(device).bfloat16()), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


WRONG = {
    "deprecated": _fit_with(autocast=_old_autocast),
    "still-float32": _fit_with(
        autocast=lambda d: torch.autocast("cuda" if d.type != "cuda" else "cpu")
    ),
    "other-dtype": _fit_with(dtype_of=lambda d: torch.bfloat16),
    "half-model": _fit_half_model,
    "no-scaler": _fit_with(scales=lambda dtype: False),
    "scaler-for-bf16": _fit_with(scales=lambda dtype: True),
    "new-scaler": _fit_with(each=True),
    "steps-on": _fit_with(bare=True),
    "other-weights": _fit_with(zero=False),
}
