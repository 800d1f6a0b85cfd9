"""Models one step of a network on the simulated device, without data: its time and its peak memory.

The network, its input and its optimiser are created as in a learner's program, on a temporary
device in the `no_data` mode, and the virtual clock is read before and after.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache, partial

import torch
from torch import Tensor, nn

import simgpu
from simgpu import profiles, temporary_device
from simgpu.host import costs
from simgpu.machine import MACHINE
from simgpu.nodata import NoData
from simgpu.profiles import Profile

from .networks import NETWORKS, input_shapes, loss_of
from .table import Unsupported
from .work import Step, tf32_allowed

AUTOCAST = {"amp": torch.float16, "amp_bf16": torch.bfloat16}
WEIGHTS = {"fp16": torch.float16, "bf16": torch.bfloat16}

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "nesterov": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adamw_fused": partial(torch.optim.AdamW, fused=True),
}
"""The optimiser for each ``mode`` of a step; ``"backward"`` has none."""

TRACED = 0.7
"""The fraction of the host's work that remains in TorchScript, where no Python runs.

Chosen on six in ten times of BERT in TorchScript on a T4, a V100 and an A100 (NVIDIA/FasterTransformer); a
BERT of very few numbers takes 0.43 of the time traced that it takes from Python on a CPU of today.
"""


@lru_cache(maxsize=4096)
def model_step(step: Step, profile: str) -> dict[str, float]:
    """Return a step's modelled ``"seconds"``, and its peak memory: ``"bytes"`` allocated and ``"reserved"``.

    The result is cached. ``profile`` is a name for `profiles.load`.

    Raises
    ------
    Unsupported
        If it does not fit into the card's memory.
    """
    products, convolutions = step.precision == "tf32", step.precision != "strict"
    total = profiles.load(profile).total_memory
    try:
        with temporary_device(total, profile) as device, tf32_allowed(products, convolutions):
            return _measure_step(step, device)
    except torch.OutOfMemoryError:
        raise Unsupported(f"it does not fit into the memory of the modelled {profile}") from None
    finally:
        gc.collect()


def _measure_step(step: Step, device: torch.device) -> dict[str, float]:
    """Return the modelled seconds and peak bytes of a step on a simulated device, as `model_step` does.

    Timed is a second step in training, and the only one in inference, unless its scores are kept; the peaks
    cover all of them and cuBLAS's workspace. The device must be temporary: its clock's costs may be changed.
    """
    clock, allocator = simgpu.clock(device), MACHINE.device(device).allocator
    if step.traced:
        clock.costs = costs(TRACED * clock.profile.host)
    with NoData():
        run_step = _make_step(step, device)
        allocator.allocate(workspace(simgpu.profile(device)))
        if step.mode != "infer" or step.kept:
            run_step()  # makes the gradients, the optimiser's state and the scores that are kept
        clock.synchronize()
        start = clock.host
        run_step()
        clock.synchronize()
    peaks = {"bytes": float(allocator.max_allocated), "reserved": float(allocator.max_reserved)}
    return {"seconds": clock.host - start, **peaks}


def workspace(profile: Profile) -> int:
    """Return the bytes of the workspace that PyTorch allocates for cuBLAS at the first matrix product.

    The simulated device has none of its own. It is the default of ``CUBLAS_WORKSPACE_CONFIG``:
    ``:4096:2:16:8``, and ``:4096:8`` from Hopper on, each a size in KiB and a number of them.
    """
    return 1024 * (4096 * 8 if profile.capability >= (9, 0) else 4096 * 2 + 16 * 8)


def _make_step(step: Step, device: torch.device) -> Callable[[], None]:
    """Create a step's model, batch and optimiser on the device; return a function that runs the step."""
    layout = torch.channels_last if step.channels_last else torch.contiguous_format
    weights, dtype = WEIGHTS.get(step.precision, torch.float32), AUTOCAST.get(step.precision)
    with torch.device("meta"):
        model = NETWORKS[step.network](**dict(step.options))
    _allocate_parameters(model.to(weights).to(memory_format=layout), device)
    shape, labels = input_shapes(step)
    inputs = torch.zeros(shape, dtype=torch.int64 if len(shape) == 2 else weights, device=device)
    if len(shape) == 4:
        inputs = inputs.contiguous(memory_format=layout)
    wanted = torch.zeros(labels, dtype=torch.int64, device=device)
    autocast = partial(torch.autocast, device.type, dtype, enabled=dtype is not None)
    kept: list[Tensor] = []
    if step.mode == "infer":
        model.eval()

        def forward() -> None:
            """Run the inference step."""
            with torch.no_grad(), autocast():
                scores = model(inputs)
            kept[:] = [scores] * step.kept

        return forward
    make = OPTIMIZERS.get(step.mode)
    optimizer = make(list(model.parameters())) if make else None
    scaler = torch.amp.GradScaler(device.type, enabled=step.scaled)

    def train() -> None:
        """Run the training step."""
        if step.clear == "before":
            model.zero_grad()
        with autocast():
            scores = model(inputs)
            loss = loss_of(step, scores, wanted)
        kept[:] = [scores] * step.kept
        del scores
        if step.clear == "between":
            model.zero_grad()
        scaler.scale(loss).backward()
        if optimizer is not None:
            scaler.step(optimizer)
            scaler.update()

    return train


def _allocate_parameters(model: nn.Module, device: torch.device) -> None:
    """Allocate a meta model's parameters on a device, shared weights once, and reset the peak memory."""
    uses: dict[int, list[tuple[nn.Module, str]]] = defaultdict(list)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            uses[id(parameter)].append((module, name))
    model.to_empty(device=device)
    for (first, name), *others in uses.values():
        for module, other in others:
            setattr(module, other, getattr(first, name))
    allocator = MACHINE.device(device).allocator
    allocator.empty_cache()
    allocator.reset_peak()
