"""``torch.save`` and ``torch.load`` for tensors on a simulated device, with ``map_location``.

A tensor is saved as its payload's storage with the location tag ``sim:0``, as CUDA's with ``cuda:0``.
So views and tied weights stay shared, ``weights_only=True`` needs no allowed globals, and
``map_location="cpu"`` loads the file without a simulated device.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from . import storage as storages
from .machine import MACHINE


def reduce(tensor: torch.Tensor, payload: torch.Tensor) -> Any:
    """Return the (function, arguments) by which pickle rebuilds a SimTensor, for ``__reduce_ex__``."""
    hooks = OrderedDict()
    if payload.layout is not torch.strided or payload.is_conj() or payload.is_neg():
        rebuild = torch._utils._rebuild_device_tensor_from_cpu_tensor
        return rebuild, (payload.clone(), tensor.dtype, str(tensor.device), tensor.requires_grad)
    if isinstance(tensor, torch.nn.Parameter):
        data = tensor.detach()
        return torch._utils._rebuild_parameter, (data, tensor.requires_grad, hooks)
    storage = payload.untyped_storage()
    storage._sim_location = str(tensor.device)
    typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=tensor.dtype, _internal=True)
    return torch._utils._rebuild_tensor_v2, (
        typed,
        payload.storage_offset(),
        tuple(payload.shape),
        payload.stride(),
        tensor.requires_grad,
        hooks,
    )


def tag(storage: Any) -> str | None:
    """Return a storage's location tag, such as ``"sim:0"``; None if it is not a simulated device's."""
    return getattr(storage, "_sim_location", None)


def restore(storage: Any, location: str) -> Any:
    """Return a loaded CPU storage copied to the device of its location tag, for ``torch.load``.

    None if the tag is not a simulated device's. Raise RuntimeError if there is no such device.
    """
    if not str(location).startswith("sim"):
        return None
    index = torch.device(location).index
    count = len(MACHINE.devices)
    if index is not None and index >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on sim device {index} but torch.sim.device_count() is "
            f"{count}. Please use torch.load with map_location to map your storages to an existing device."
        )
    device = MACHINE.device(index)
    device_storage = storages.to_device(storage, device)
    MACHINE.copy(device, "h2d", storage.nbytes())
    return device_storage
