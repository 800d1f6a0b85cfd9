"""A simulated device for a while, beside those that are there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

import simgpu


@contextlib.contextmanager
def spare_device(
    memory: int | str, profile: str = "T4", *, expandable_segments: bool = False
) -> Iterator[torch.device]:
    """Add one simulated device for a while; those that are there, and their tensors, stay as they are.

    Within the block it is the current simulated device. Drop its tensors before the block ends.

    Parameters
    ----------
    memory
        Its capacity, in bytes or as ``"300 MB"``.
    profile
        The GPU to simulate.
    expandable_segments
        Whether its allocator works as with ``PYTORCH_ALLOC_CONF=expandable_segments:True``.

    Raises
    ------
    RuntimeError
        Where this PyTorch cannot have the simulated device.
    """
    from simgpu.machine import MACHINE, Device, parse_memory
    from simgpu.profiles import load

    simgpu.first()
    spare = Device(
        len(MACHINE.devices),
        load(profile),
        parse_memory(memory),
        MACHINE.host,
        expandable_segments=expandable_segments,
    )
    MACHINE.devices.append(spare)
    before, MACHINE.current = MACHINE.current, spare.index
    try:
        yield spare.torch_device
    finally:
        MACHINE.devices.remove(spare)
        MACHINE.current = before
