"""Storages of a simulated device: CPU storages that report the device, and hold device memory.

PyTorch has no storages for a Python device: its C++ code would read an invalid address, and the process
would crash.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .machine import MACHINE, Device, Memory

_StorageBase = torch._C.StorageBase


def to_device(storage: torch.UntypedStorage, device: Device) -> torch.UntypedStorage:
    """Return a copy of a CPU storage on a device; allocates device memory."""
    copy = torch.UntypedStorage(_StorageBase.nbytes(storage))
    copy.copy_(storage)
    return _attach(copy, device)


def device_storage(payload: torch.Tensor, memory: Memory) -> torch.UntypedStorage:
    """Return the storage of a device tensor's payload, with the tensor's device memory attached."""
    storage = payload.untyped_storage()
    storage._sim_memory = memory
    return storage


def _attach(storage: Any, device: Device) -> Any:
    """Attach a device and newly allocated device memory to a CPU storage, and return it."""
    storage._sim_memory = Memory(device, _StorageBase.nbytes(storage))
    return storage


def register() -> None:
    """Monkey-patch ``torch.UntypedStorage`` for simulated devices.

    Its constructor accepts ``device="sim"``; ``device``, ``nbytes`` and ``resize_`` use the device memory.
    """

    @functools.wraps(_StorageBase.__new__)
    def new(cls: type, *args: Any, device: Any = None, **more: Any) -> Any:
        if device is None:
            return _StorageBase.__new__(cls, *args, **more)
        if torch.device(device).type != "sim":
            return _StorageBase.__new__(cls, *args, device=device, **more)
        return _attach(_StorageBase.__new__(cls, *args, **more), MACHINE.device(device))

    def device(self: Any) -> torch.device:
        memory = getattr(self, "_sim_memory", None)
        return _StorageBase.device.__get__(self) if memory is None else memory.device.torch_device

    def nbytes(self: Any) -> int:
        memory = getattr(self, "_sim_memory", None)
        return _StorageBase.nbytes(self) if memory is None else memory.nbytes

    @functools.wraps(_StorageBase.resize_)
    def resize_(self: Any, size: int) -> Any:
        memory = getattr(self, "_sim_memory", None)
        # A tensor may reach beyond the new end, where CUDA raises or reads arbitrary data. Here the device
        # memory is freed and the CPU storage keeps its size: reading beyond it would crash the process.
        if memory is None or size > _StorageBase.nbytes(self):
            _StorageBase.resize_(self, size)
        if memory is not None:
            memory.resize(size)
        return self

    kind = torch.UntypedStorage
    kind.__new__, kind.resize_ = new, resize_
    kind.device = property(device, doc="Where the bytes are.")
    kind.nbytes = kind.size = nbytes
