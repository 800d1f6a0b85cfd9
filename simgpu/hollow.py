"""Tensors with memory and time and without values: what a training would need, computed without it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map_only

from .machine import MACHINE
from .products import innermost
from .tensor import SimTensor, run

_META = torch.device("meta")


class Hollow(TorchDispatchMode):
    """Within it, new tensors on the simulated device have sizes and memory, and no values.

    Every operation takes memory and modelled time as usual, and computes nothing. What is copied to the
    CPU is zero, and so is ``.item()``, which makes the host wait as it does where there is a value.

    Raises
    ------
    RuntimeError
        From an operation that cannot know its result's shape without values, such as ``nonzero``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sizes_only = _SizesOnly(self)

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if SimTensor not in types and getattr(kwargs.get("device"), "type", "") != "sim":
            return op(*args, **kwargs)
        if op is torch.ops.aten._local_scalar_dense.default:
            MACHINE.copy(MACHINE.device(args[0].device), "d2h", args[0].element_size())
            return 0
        if op.is_view or (op is torch.ops.aten._to_copy.default and SimTensor not in types):
            with self:  # a view of the tensor as it is, or the parts of a copy
                return run(op, args, kwargs)
        with self._sizes_only:
            out = run(op, args, kwargs)
        if op is torch.ops.aten.copy_.default and type(out) is Tensor:
            return out.zero_()
        return tree_map_only(Tensor, _on_the_host, out)


class _SizesOnly(TorchDispatchMode):
    """Within it, what the device would compute on the CPU is worked out as sizes, on ``meta``."""

    def __init__(self, hollow: Hollow) -> None:
        super().__init__()
        self._hollow = hollow

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if SimTensor in types:  # a part of an operation that the device takes apart
            with self._hollow:
                return op(*args, **kwargs)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _META}
        met: dict[int, Tensor] = {}

        def sizes(x: Tensor) -> Tensor:
            if x.device == _META:
                return x
            made = _sizes(x)
            met[id(made)] = x
            return made

        if tree_any(_has_values, (args, kwargs)):  # made outside of the mode, or by the host
            args, kwargs = tree_map_only(Tensor, sizes, (args, kwargs))
        try:
            out = op(*args, **kwargs)
        except NotImplementedError:
            if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(op.tags):
                raise RuntimeError(
                    f"{op.name()} cannot know its result's shape: within Hollow no tensor has values."
                ) from None
            args, kwargs = tree_map_only(Tensor, _zeros, (args, kwargs))
            out = tree_map_only(Tensor, _sizes, op(*args, **kwargs))
        given = [x for x in args[:3] if isinstance(x, Tensor)]
        if "convolution" in op.name() and any(map(innermost, given)):  # meta lays out as if not
            out = tree_map_only(Tensor, _put_innermost, out)
        return tree_map_only(Tensor, lambda x: met.get(id(x), x), out) if met else out


def _has_values(x: Any) -> bool:
    return isinstance(x, Tensor) and x.device != _META


def _put_innermost(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _sizes(x: Tensor) -> Tensor:
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=_META)


def _zeros(x: Tensor) -> Tensor:
    return torch.zeros(x.size(), dtype=x.dtype)


def _on_the_host(x: Tensor) -> Tensor:
    return x if isinstance(x, SimTensor) or x.device != _META else _zeros(x)
