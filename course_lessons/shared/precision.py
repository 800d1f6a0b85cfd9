"""Helpers for mixed precision: a device for gradient scaling, underflow in float16, and full float32
matmuls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

import simgpu

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def scaling_device(device: torch.device) -> torch.device:
    """Return an accelerator on which float16 autocast and a gradient scaler work.

    It is ``device`` if it supports them (MPS does from PyTorch 2.8 on), else the simulated device. If this
    PyTorch has none, it is the CPU, whose autocast op lists differ from a GPU's.

    Parameters
    ----------
    device
        The device to try.
    """
    if device.type != "cpu" and _supports_scaling(device):
        return device
    return torch.device("cpu") if simgpu.unavailable_reason() else simgpu.first()


def _supports_scaling(device: torch.device) -> bool:
    """Return whether a device supports float16 autocast with a gradient scaler, by running one step."""
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
    """Return the percentage (0 to 100) of nonzero entries of ``before`` that are zero in ``after``."""
    return 100 * (after[before != 0] == 0).float().mean().item()


def gradients_lost(
    net: torch.nn.Module, loss_fn: Loss, x: torch.Tensor, target: torch.Tensor
) -> tuple[float, float]:
    """Return the percentages of a network's nonzero gradients that are zero in float16 without scaling.

    Returns
    -------
    tuple
        The percentage if the float32 gradients are converted at the end, and that if forward and
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
    """Disable TF32 and other reduced precision for float32 in the block: matmuls, convolutions, RNNs.

    At the end the settings are restored, those of the older API (``allow_tf32``) and of the newer
    (``fp32_precision``).
    """
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
