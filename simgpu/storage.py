"""Storages of a simulated device: CPU bytes that give the device as theirs, and take its memory.

PyTorch has no memory of its own for a Python device: asked in C++ for a storage there, it would read an
address that is none, and the process would end.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .machine import MACHINE, Device, Memory

_StorageBase = torch._C.StorageBase


def to_device(storage: torch.UntypedStorage, device: Device) -> torch.UntypedStorage:
    """Copy a CPU storage to a device."""
    copy = torch.UntypedStorage(_StorageBase.nbytes(storage))
    copy.copy_(storage)
    return _attach(copy, device)


def device_storage(payload: torch.Tensor, memory: Memory) -> torch.UntypedStorage:
    """Return the storage of a device tensor's payload, with the tensor's device memory."""
    storage = payload.untyped_storage()
    storage._sim_memory = memory
    return storage


def _attach(storage: Any, device: Device) -> Any:
    storage._sim_device = device.torch_device
    storage._sim_memory = Memory(device, _StorageBase.nbytes(storage))
    return storage


def register() -> None:
    """Let ``torch.UntypedStorage`` make the device's storages, name their device, and change their sizes."""

    @functools.wraps(_StorageBase.__new__)
    def new(cls: type, *args: Any, device: Any = None, **more: Any) -> Any:
        if device is None:
            return _StorageBase.__new__(cls, *args, **more)
        if torch.device(device).type != "sim":
            return _StorageBase.__new__(cls, *args, device=device, **more)
        return _attach(_StorageBase.__new__(cls, *args, **more), MACHINE.device(device))

    def device(self: Any) -> torch.device:
        return getattr(self, "_sim_device", None) or _StorageBase.device.__get__(self)

    def nbytes(self: Any) -> int:
        memory = getattr(self, "_sim_memory", None)
        return _StorageBase.nbytes(self) if memory is None else memory.nbytes

    @functools.wraps(_StorageBase.resize_)
    def resize_(self: Any, size: int) -> Any:
        memory = getattr(self, "_sim_memory", None)
        # A tensor may look beyond the new end, where CUDA gives an error or whatever lies there. Here
        # the device has its memory back and the numbers stay: the CPU would end the process.
        if memory is None or size > _StorageBase.nbytes(self):
            _StorageBase.resize_(self, size)
        if memory is not None:
            memory.resize(size)
        return self

    kind = torch.UntypedStorage
    kind.__new__, kind.resize_ = new, resize_
    kind.device = property(device, doc="Where the bytes are.")
    kind.nbytes = kind.size = nbytes
