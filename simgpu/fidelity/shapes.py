"""Tensors on the simulated device with sizes, memory and time, on PyTorch's ``meta`` device.

`simgpu.hollow` does the same with fake tensors of the CPU, which know more operations and take several
times as long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from simgpu.machine import MACHINE
from simgpu.tensor import SimTensor, run

_META = torch.device("meta")


class ShapesOnly(TorchDispatchMode):
    """Within it, new tensors on the simulated device have no values; ``.item()`` is zero."""

    def __init__(self) -> None:
        super().__init__()
        self._on_meta = _OnMeta()

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if op is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], SimTensor):
            MACHINE.copy(MACHINE.device(args[0].device), "d2h", args[0].element_size())
            return 0
        if device is not None and torch.device(device).type == "sim":
            with self._on_meta:
                return run(op, args, kwargs)
        return run(op, args, kwargs) if SimTensor in types else op(*args, **kwargs)


class _OnMeta(TorchDispatchMode):
    """Within it, what the device would make of the CPU's numbers has none."""

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _META}
        return op(*args, **kwargs)
