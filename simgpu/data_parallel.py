"""``nn.DataParallel`` on simulated devices: replaces what PyTorch implements in C++ for CUDA only.

``torch.nn.parallel`` scatters, broadcasts and gathers through ``torch.nn.parallel.comm``. For other
devices its functions are unchanged.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._utils import _flatten_dense_tensors, _take_tensors, _unflatten_dense_tensors
from torch.cuda import nccl
from torch.nn.parallel import _functions, comm

from .machine import MACHINE
from .tensor import SimTensor

_active: list[bool] = []
"""Not empty during a call of a DataParallel whose module is on a simulated device; one entry per call."""


def register() -> None:
    """Monkey-patch ``torch.nn.parallel`` and ``DataParallel`` to accept simulated devices; call it once.

    Each patched function calls PyTorch's own for tensors and devices that are not simulated.
    """
    # In the package a function has this module's name.
    data_parallel = sys.modules[nn.DataParallel.__module__]
    for owner in (torch._utils, data_parallel):
        _patch(owner, "_get_available_device_type", lambda: "sim", lambda: bool(_active))
    _patch(nccl, "is_available", lambda tensors: False, _on_sim)
    _patch(comm, "broadcast_coalesced", _broadcast, _is_to_broadcast)
    _patch(comm, "gather", _gather, lambda tensors, *_, **__: _on_sim(tensors))
    _patch(comm, "scatter", _scatter, lambda tensor, *_, **__: _on_sim([tensor]) or _is_default())
    _patch(_functions, "_get_stream", torch.sim.current_stream, lambda device: _is_default())
    for owner in (nn.parallel, data_parallel):
        _patch(owner, "parallel_apply", _parallel_apply, lambda *_, **__: _is_default())
    _patch_method("__init__")
    _patch_method("forward")


def _patch(owner: Any, name: str, replacement: Callable[..., Any], when: Callable[..., bool]) -> None:
    """Monkey-patch ``owner.name``.

    A call goes to ``replacement`` if ``when(*args, **kwargs)`` is true, else to the original.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (replacement if when(*args, **kwargs) else original)(*args, **kwargs)

    setattr(owner, name, call)


def _patch_method(name: str) -> None:
    """Monkey-patch a method of DataParallel to use the simulated devices if the module is on one.

    PyTorch takes the device type from the process, which with a real GPU would be the GPU's.
    """
    method = getattr(nn.DataParallel, name)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        module = kwargs.get("module", args[0]) if name == "__init__" else self.module
        if not _on_sim(module.parameters()):
            return method(self, *args, **kwargs)
        _active.append(True)
        try:
            return method(self, *args, **kwargs)
        finally:
            _active.pop()

    setattr(nn.DataParallel, name, call)


def _on_sim(tensors: Iterable[Tensor]) -> bool:
    """Return whether any of the tensors is on a simulated device."""
    return any(isinstance(tensor, SimTensor) for tensor in tensors)


def _is_to_broadcast(tensors: Sequence[Tensor], *_: Any, **__: Any) -> bool:
    """Return whether a broadcast goes to simulated devices; a model without buffers passes no tensors."""
    return _on_sim(tensors) if tensors else _is_default()


def _is_default() -> bool:
    """Return whether an integer means a simulated device."""
    return torch._utils._get_available_device_type() == "sim"


def _torch_device(device: int | torch.device | str) -> torch.device:
    """Return a device argument of DataParallel as a ``torch.device``; -1 is the CPU."""
    if device in (-1, "cpu", torch.device("cpu")):
        return torch.device("cpu")
    return MACHINE.device(device).torch_device


def _broadcast(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10 * 2**20
) -> list[list[Tensor]]:
    """Return copies of the tensors for each device, coalesced into buffers of ``buffer_size`` bytes.

    On the tensors' own device they are not copied, only detached. Replaces ``comm.broadcast_coalesced``.
    """
    if not tensors:
        return [[] for _ in devices]
    copies: list[list[Tensor]] = []
    for device in map(_torch_device, devices):
        copied: dict[int, Tensor] = {}
        for chunk in [] if device == tensors[0].device else _take_tensors(tensors, buffer_size):
            flat = _flatten_dense_tensors(chunk).to(device, non_blocking=True)
            parts = _unflatten_dense_tensors(flat, chunk)
            copied.update(zip(map(id, chunk), parts, strict=True))
        copies.append([copied.get(id(tensor), tensor.detach()) for tensor in tensors])
    return copies


def _scatter(
    tensor: Tensor,
    devices: Sequence[Any],
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: object = None,
) -> tuple[Tensor, ...]:
    """Split a tensor into chunks and copy each to its device; replaces ``comm.scatter``.

    ``streams`` is ignored: the copies run in the current stream.
    """
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    return tuple(
        part.contiguous().to(_torch_device(device), non_blocking=True)
        for part, device in zip(parts, devices, strict=False)  # a short batch has fewer parts
    )


def _gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None) -> Tensor:
    """Concatenate the tensors of several devices on one; replaces ``comm.gather``."""
    device = _torch_device(tensors[0].device if destination is None else destination)
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def _parallel_apply(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module on its device, one after another; replaces ``parallel_apply``.

    PyTorch starts a thread for each. As Python runs one of them at a time, that takes the host's clock as
    long, and here the results are deterministic.
    """
    outputs = []
    for i, (module, replica_input) in enumerate(zip(modules, inputs, strict=True)):
        with torch.sim.device(_torch_device(devices[i])) if devices else contextlib.nullcontext():
            args = replica_input if isinstance(replica_input, (list, tuple)) else (replica_input,)
            outputs.append(module(*args, **(kwargs_tup[i] if kwargs_tup else {})))
    return outputs
