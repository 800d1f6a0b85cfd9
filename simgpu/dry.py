"""A dry run: neither the simulated device nor the CPU's large tensors have values.

So a model that is made on the CPU and then moved takes neither the memory nor the time of its initial values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_any, tree_map_only

from .machine import MACHINE
from .nodata import NoData
from .tensor import SimTensor

LARGE = 2**20
"""Bytes from which on a tensor on the CPU has no values."""


class Dry(NoData):
    """The dispatch mode of a dry run: as `NoData`, and large tensors on the CPU stay uninitialized.

    The system gives memory to a tensor only when it is written to.
    """

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        on_device = SimTensor in types or getattr(kwargs.get("device"), "type", "cpu") != "cpu"
        if on_device or op.is_view or not _may_be_large(op, args, kwargs):
            return super().__torch_dispatch__(op, types, args, kwargs)
        return _without_values(op, args, kwargs)


def _may_be_large(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operation on the CPU reads a large tensor, or may make one of a given size."""
    if tree_any(lambda x: isinstance(x, Tensor) and x.nbytes >= LARGE, (args, kwargs)):
        return True
    sizes = args[0] if args and isinstance(args[0], (list, tuple, torch.Size)) else ()
    count = 1
    for size in sizes:
        if not isinstance(size, int):
            return False
        count *= size
    return count * 4 >= LARGE


def _without_values(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return an operation's result with the right shapes and no values; run it if only values can tell."""
    originals: dict[int, Tensor] = {}

    def to_meta(x: Tensor) -> Tensor:
        meta = torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")
        originals[id(meta)] = x
        return meta

    meta_args, meta_kwargs = tree_map_only(Tensor, to_meta, (args, kwargs))
    meta_kwargs.pop("generator", None)
    if "device" in meta_kwargs:
        meta_kwargs["device"] = torch.device("meta")
    try:
        out = op(*meta_args, **meta_kwargs)
    except (NotImplementedError, RuntimeError):
        return op(*args, **kwargs)

    def back(x: Tensor) -> Tensor:
        original = originals.get(id(x))
        if original is not None:
            return original
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype)

    return tree_map_only(Tensor, back, out)


@contextlib.contextmanager
def without_values() -> Iterator[None]:
    """Return a context manager for a dry run; a device whose memory is full gets more meanwhile."""
    capacities = [(device.allocator, device.allocator.capacity) for device in MACHINE.devices]
    for allocator, _ in capacities:
        allocator.grows = True
    try:
        with Dry():
            yield
    finally:
        for allocator, capacity in capacities:
            allocator.grows = False
            allocator._capacity = max(capacity, allocator._segments.bytes.current)
