"""Where float16 with a gradient scaler can be shown."""

from __future__ import annotations

import torch

from . import simgpu


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
    return torch.device("cpu") if simgpu.problem() else simgpu.first()


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
