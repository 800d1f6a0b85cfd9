"""Where float16 with a gradient scaler can be shown, what lesson 04 counts with, and products in full float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

import simgpu

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def scaling_device(device: torch.device) -> torch.device:
    """Return an accelerator on which autocast and a gradient scaler work.

    It is ``device`` where that is one (on MPS the scaler came with PyTorch 2.8), else the simulated one;
    where this PyTorch cannot have that, the CPU, whose lists of operations differ from a GPU's.

    Parameters
    ----------
    device
        A device that works.
    """
    if device.type != "cpu" and _scales(device):
        return device
    return torch.device("cpu") if simgpu.unavailable_reason() else simgpu.first()


def _scales(device: torch.device) -> bool:
    model = torch.nn.Linear(2, 1).to(device)
    scaler = torch.amp.GradScaler(device.type)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        with torch.amp.autocast(device.type, dtype=torch.float16):
            loss = model(torch.ones(1, 2, device=device)).sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    except (RuntimeError, TypeError, NotImplementedError):
        return False
    return True


def zeroed(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return how many per cent of the nonzero entries of ``before`` are zero in ``after``."""
    return 100 * (after[before != 0] == 0).float().mean().item()


def gradients_lost(
    net: torch.nn.Module, loss_fn: Loss, x: torch.Tensor, target: torch.Tensor
) -> tuple[float, float]:
    """Return how many per cent of a network's gradients are lost in float16 without scaling.

    Returns
    -------
    tuple
        The share where the finished float32 gradients are converted, and the share where forward and
        backward run in float16 (under autocast).
    """
    found = []
    for enabled in (False, True):
        with torch.amp.autocast(x.device.type, dtype=torch.float16, enabled=enabled):
            loss = loss_fn(net(x), target)
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        found.append(torch.cat([gradient.flatten() for gradient in gradients]))
    single, half = found
    return zeroed(single, single.half()), zeroed(single, half)


_SWITCHES = ("", "cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn", "mkldnn", "mkldnn.matmul")
"""Where newer releases keep the precision of float32 products, the general before the particular."""


@contextmanager
def full_float32() -> Iterator[None]:
    """Multiply in full float32 within it, and put back afterwards what was switched meanwhile, by the older words or the newer."""
    newer: dict[Any, str] = {}
    older: dict[Any, bool] = {}
    for name in _SWITCHES:
        place: Any = torch.backends
        for part in filter(None, name.split(".")):
            place = getattr(place, part, None)
        if hasattr(place, "fp32_precision"):
            newer[place] = place.fp32_precision
    cudnn = torch.backends.cudnn
    for place in (torch.backends.cuda.matmul, cudnn):
        with suppress(RuntimeError):  # cannot be read after a newer switch was turned
            older[place] = place.allow_tf32
    precision = "highest"
    with suppress(RuntimeError):
        precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    for place in newer:
        if place not in (getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
            place.fp32_precision = "none"  # as PyTorch begins
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for place, value in older.items():
            place.allow_tf32 = value
        for place, value in newer.items():
            place.fp32_precision = value
