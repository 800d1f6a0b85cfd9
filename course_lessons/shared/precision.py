"""A device for float16 with a gradient scaler, gradients lost in float16, and full float32 products."""

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
    """Return the percentage of nonzero entries of ``before`` that are zero in ``after``."""
    return 100 * (after[before != 0] == 0).float().mean().item()


def gradients_lost(
    net: torch.nn.Module, loss_fn: Loss, x: torch.Tensor, target: torch.Tensor
) -> tuple[float, float]:
    """Return which percentage of a network's gradients is lost in float16 without scaling.

    Returns
    -------
    tuple
        The percentage where the finished float32 gradients are converted, and that where forward and
        backward run in float16 (under autocast).
    """
    flat = []
    for enabled in (False, True):
        with torch.amp.autocast(x.device.type, dtype=torch.float16, enabled=enabled):
            loss = loss_fn(net(x), target)
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        flat.append(torch.cat([gradient.flatten() for gradient in gradients]))
    single, half = flat
    return zeroed(single, single.half()), zeroed(single, half)


_SWITCHES = ("", "cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn", "mkldnn", "mkldnn.matmul")
"""Backends with an ``fp32_precision`` in newer releases, the general before the particular."""


@contextmanager
def full_float32() -> Iterator[None]:
    """Multiply in full float32 within it; restore the settings of the older API and the newer afterwards."""
    newer: dict[Any, str] = {}
    older: dict[Any, bool] = {}
    for name in _SWITCHES:
        backend: Any = torch.backends
        for part in filter(None, name.split(".")):
            backend = getattr(backend, part, None)
        if hasattr(backend, "fp32_precision"):
            newer[backend] = backend.fp32_precision
    cudnn = torch.backends.cudnn
    for backend in (torch.backends.cuda.matmul, cudnn):
        with suppress(RuntimeError):  # cannot be read once the newer API was used
            older[backend] = backend.allow_tf32
    precision = "highest"
    with suppress(RuntimeError):
        precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    for backend in newer:
        if backend not in (getattr(cudnn, "conv", None), getattr(cudnn, "rnn", None)):
            backend.fp32_precision = "none"  # PyTorch's default
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for backend, allowed in older.items():
            backend.allow_tf32 = allowed
        for backend, setting in newer.items():
            backend.fp32_precision = setting
