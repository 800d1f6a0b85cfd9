"""Tensors without data: only shapes, as in ``FakeTensorMode``, but memory and time as usual.

So the memory and time of a training can be predicted without computing it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map_only

from .machine import MACHINE
from .products import is_channels_last
from .tensor import SimTensor, dispatch

_META = torch.device("meta")


class NoData(TorchDispatchMode):
    """A dispatch mode in which new tensors on the simulated device carry ``meta`` tensors and no data.

    Like PyTorch's ``FakeTensorMode`` it propagates shapes, strides and dtypes and computes nothing; every
    operation allocates memory and takes modelled time as usual. Copies to the CPU are zeros, and ``.item()``
    returns 0, synchronizing as usual.

    Raises
    ------
    RuntimeError
        In an operation whose result's shape depends on values, such as ``nonzero``.
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
            return torch.zeros((), dtype=args[0].dtype).item()
        if op.is_view or (op is torch.ops.aten._to_copy.default and SimTensor not in types):
            with self:  # a view of the tensor as it is, or the parts of a copy
                return dispatch(op, args, kwargs)
        with self._on_meta:
            out = dispatch(op, args, kwargs)
        if op is torch.ops.aten.copy_.default and type(out) is Tensor:
            return out.zero_()
        return tree_map_only(Tensor, _to_host, out)


class _OnMeta(TorchDispatchMode):
    """The dispatch mode that runs on ``meta`` tensors what the device would compute on the CPU."""

    def __init__(self, outer: NoData) -> None:
        super().__init__()
        self._outer = outer

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if SimTensor in types:  # a part of a decomposed operation
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

        if tree_any(_has_values, (args, kwargs)):  # created outside the mode, or on the CPU
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
    """Return whether a value is a tensor that is not on ``meta``."""
    return isinstance(x, Tensor) and x.device != _META


def _to_channels_last(x: Tensor) -> Tensor:
    """Return a 4-dim tensor in channels_last memory format; others as they are."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _to_meta(x: Tensor) -> Tensor:
    """Return a meta tensor with the same shape, strides and dtype."""
    return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=_META)


def _zeros(x: Tensor) -> Tensor:
    """Return a CPU tensor of zeros with the same shape and dtype."""
    return torch.zeros(x.size(), dtype=x.dtype)


def _to_host(x: Tensor) -> Tensor:
    """Return CPU zeros in place of a meta tensor; other tensors as they are."""
    return x if isinstance(x, SimTensor) or x.device != _META else _zeros(x)
