"""``torch.save`` and ``torch.load`` for tensors on a simulated device, with ``map_location``.

A saved tensor is its payload's storage, tagged with the device: ``sim:0``, as CUDA tags ``cuda:0``.
So views and tied weights stay together, ``weights_only=True`` needs no permission, and
``map_location="cpu"`` opens the file where there is no simulated device.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from . import storage as storages
from .machine import MACHINE


def reduce(tensor: torch.Tensor, payload: torch.Tensor) -> Any:
    """Return what pickle needs to make a tensor with this payload again."""
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
    """Return where a storage is to be restored, or None where it is not ours."""
    return getattr(storage, "_sim_location", None)


def restore(storage: Any, location: str) -> Any:
    """Bring a loaded storage to the device of its tag; None where the tag is not ours."""
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
    moved = storages.to_device(storage, device)
    MACHINE.copy(device, "h2d", storage.nbytes())
    return moved
