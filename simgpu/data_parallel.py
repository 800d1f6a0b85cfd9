"""``nn.DataParallel`` on simulated devices: what PyTorch does in C++, and only for CUDA, is done here.

``torch.nn.parallel`` scatters, broadcasts and gathers through ``torch.nn.parallel.comm``. For other
devices its functions do what they did.
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
"""One for each call under way of a DataParallel whose module is on a simulated device."""


def register() -> None:
    """Let ``torch.nn.parallel`` work on the simulated devices."""
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
    """Let a function of PyTorch be replaced where ``when`` holds: for what is on a simulated device."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (replacement if when(*args, **kwargs) else original)(*args, **kwargs)

    setattr(owner, name, call)


def _patch_method(name: str) -> None:
    """Let a method of DataParallel use the simulated devices where its module is on one.

    It takes the device's type from the process; with a real GPU in it that would be the GPU's.
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
    return any(isinstance(tensor, SimTensor) for tensor in tensors)


def _is_to_broadcast(tensors: Sequence[Tensor], *_: Any, **__: Any) -> bool:
    """Whether tensors, or none where a model has no buffers, go to simulated devices."""
    return _on_sim(tensors) if tensors else _is_default()


def _is_default() -> bool:
    """Whether a number for a device means a simulated one."""
    return torch._utils._get_available_device_type() == "sim"


def _torch_device(device: int | torch.device | str) -> torch.device:
    if device in (-1, "cpu", torch.device("cpu")):
        return torch.device("cpu")
    return MACHINE.device(device).torch_device


def _broadcast(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10 * 2**20
) -> list[list[Tensor]]:
    """Copy tensors to each device, many at a time; on their own device they are what they were."""
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
    """Cut a tensor into parts and put each on its device, which has one stream for that and the rest."""
    parts = tensor.split(list(chunk_sizes), dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    return tuple(
        part.contiguous().to(_torch_device(device), non_blocking=True)
        for part, device in zip(parts, devices, strict=False)  # a short batch has fewer parts
    )


def _gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None) -> Tensor:
    """Put tensors of several devices behind each other on one."""
    device = _torch_device(tensors[0].device if destination is None else destination)
    return torch.cat([tensor.to(device) for tensor in tensors], dim)


def _parallel_apply(
    modules: Sequence[nn.Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[Any] | None = None,
) -> list[Any]:
    """Call each module on its device, one after another.

    PyTorch starts a thread each. Python runs one of them at a time, so on the host's clock that is the
    same; and here the result is the same each time.
    """
    outputs = []
    for i, (module, replica_input) in enumerate(zip(modules, inputs, strict=True)):
        with torch.sim.device(_torch_device(devices[i])) if devices else contextlib.nullcontext():
            args = replica_input if isinstance(replica_input, (list, tuple)) else (replica_input,)
            outputs.append(module(*args, **(kwargs_tup[i] if kwargs_tup else {})))
    return outputs
