"""Measures the memory and time of a training step; a small simulated card that runs out of memory."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from course_lessons.shared import memory
from course_utils import synchronize
from course_utils.timing import host_clock
from simgpu import worker


def on_small_card(work: Callable[[torch.device], Any], *, expandable_segments: bool = False) -> Any:
    """Run ``work(card)`` on a simulated device of 100 MiB and return its result, or print why not.

    ``expandable_segments`` is as in ``PYTORCH_ALLOC_CONF``.
    """
    if reason := worker.unavailable_reason():
        return print(reason)
    return memory.on_card("100 MiB", work, expandable_segments=expandable_segments)


def try_it(
    device: torch.device,
    blocks: Callable[..., nn.Module],
    rows: int = 2048,
    activation: Callable[[], nn.Module] = nn.GELU,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    dtype: torch.dtype | None = None,
    *,
    step: Callable[..., object],
    **how: Any,
) -> tuple[int, float]:
    """Train the lesson's blocks for a step; return the peak memory in bytes and the time in seconds.

    On the simulated device the tensors have no values: the figures do not need them.

    Parameters
    ----------
    device
        A device that counts its memory.
    blocks
        Returns the model for an activation; it has 256 inputs and 10 classes.
    rows, activation, optimizer, dtype
        Batch size, activation, optimizer class; ``dtype`` is passed to the step, and float16 gets a scaler.
    step
        Called with model, optimizer, scaler, inputs, labels, ``dtype=`` and the keyword arguments ``how``.
    """
    gc.collect()
    bytes_before = torch.get_device_module(device).memory_allocated(device)
    with memory.NoData() if device.type == "sim" else nullcontext():
        model = blocks(activation).to(device)
        new_optimizer = optimizer(model.parameters())
        x = torch.randn(rows, 256, device=device)
        y = torch.randint(10, (rows,), device=device)
        scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10, enabled=dtype is torch.float16)
        run_step = partial(step, model, new_optimizer, scaler, x, y, dtype=dtype, **how)
        return cost(run_step, device, bytes_before)


def cost(step: Callable[[], object], device: torch.device, before: int) -> tuple[int, float]:
    """Return the peak memory of a step in bytes, less ``before``, and its time in seconds.

    A first step, which allocates the optimizer's state, is not counted. ``before`` is the memory in use
    before the model was created.
    """
    module = torch.get_device_module(device)
    step()
    module.reset_peak_memory_stats(device)
    clock, times = host_clock(device), []
    for _ in range(1 if device.type == "sim" else 10):  # modelled times do not vary
        synchronize(device)
        begin = clock()
        step()
        synchronize(device)
        times.append(clock() - begin)
    return module.max_memory_allocated(device) - before, median(times)
