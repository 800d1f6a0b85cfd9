"""Tensors without data: shapes on ``meta``, as ``FakeTensorMode`` has, and memory and time as usual.

What a training would take is thereby known without computing it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map_only

from .machine import MACHINE
from .products import is_channels_last
from .tensor import SimTensor, run

_META = torch.device("meta")


class NoData(TorchDispatchMode):
    """A dispatch mode in which new tensors on the simulated device carry ``meta`` tensors and no data.

    Like PyTorch's ``FakeTensorMode`` it propagates shapes, strides and dtypes and computes nothing; every
    operation allocates memory and takes modelled time as usual. What is copied to the CPU is zero, and so
    is ``.item()``, which synchronizes as usual.

    Raises
    ------
    RuntimeError
        From an operation that cannot know its result's shape without values, such as ``nonzero``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._on_meta = _OnMeta(self)

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
        with self._on_meta:
            out = run(op, args, kwargs)
        if op is torch.ops.aten.copy_.default and type(out) is Tensor:
            return out.zero_()
        return tree_map_only(Tensor, _to_host, out)


class _OnMeta(TorchDispatchMode):
    """A dispatch mode that runs on ``meta`` what the device would compute on the CPU."""

    def __init__(self, outer: NoData) -> None:
        super().__init__()
        self._outer = outer

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if SimTensor in types:  # a part of an operation that the device takes apart
            with self._outer:
                return op(*args, **kwargs)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _META}
        originals: dict[int, Tensor] = {}

        def to_meta(x: Tensor) -> Tensor:
            if x.device == _META:
                return x
            meta = _to_meta(x)
            originals[id(meta)] = x
            return meta

        if tree_any(_has_values, (args, kwargs)):  # made outside of the mode, or by the host
            args, kwargs = tree_map_only(Tensor, to_meta, (args, kwargs))
        try:
            out = op(*args, **kwargs)
        except NotImplementedError:
            if {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(op.tags):
                raise RuntimeError(
                    f"{op.name()} cannot know its result's shape: within NoData no tensor has values."
                ) from None
            args, kwargs = tree_map_only(Tensor, _zeros, (args, kwargs))
            out = tree_map_only(Tensor, _to_meta, op(*args, **kwargs))
        inputs = [x for x in args[:3] if isinstance(x, Tensor)]
        # On meta a convolution loses channels_last.
        if "convolution" in op.name() and any(map(is_channels_last, inputs)):
            out = tree_map_only(Tensor, _to_channels_last, out)
        return tree_map_only(Tensor, lambda x: originals.get(id(x), x), out) if originals else out


def _has_values(x: Any) -> bool:
    return isinstance(x, Tensor) and x.device != _META


def _to_channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _to_meta(x: Tensor) -> Tensor:
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=_META)


def _zeros(x: Tensor) -> Tensor:
    return torch.zeros(x.size(), dtype=x.dtype)


def _to_host(x: Tensor) -> Tensor:
    return x if isinstance(x, SimTensor) or x.device != _META else _zeros(x)
