"""Errors for tensors on different devices, with CUDA's messages."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from .machine import CPU

aten = torch.ops.aten


def check_indices(args: tuple[Any, ...]) -> None:
    """Check the devices of an indexing operation's tensors.

    Indices may be on the CPU or on the indexed tensor's device, values on the latter, unless 0-dim. Raise
    CUDA's RuntimeError otherwise.
    """
    target, indices, *values = args
    for index in indices:
        if index is not None and index.device not in (CPU, target.device):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({target.device})"
            )
    if values and values[0].device != target.device and values[0].dim():
        _raise_two_devices(target.device, values[0].device)


def _raise_two_devices(first: torch.device, other: torch.device) -> NoReturn:
    """Raise the RuntimeError "at least two devices"."""
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {first} and {other}!"
    )


def mismatch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    """Raise the RuntimeError that CUDA raises for an operation whose tensors are on different devices."""
    names = [a.name for a in op._schema.arguments]
    named: list[tuple[str, Tensor]] = []
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        values = value if isinstance(value, (list, tuple)) else [value]
        named += [(name, v) for v in values if isinstance(v, Tensor)]
    packet = op.overloadpacket
    if packet in CONVOLUTIONS:
        x, weight = named[0][1], named[1][1]
        if x.type() != weight.type():
            mkldnn = " or input should be a MKLDNN tensor and weight is a dense tensor"
            raise RuntimeError(
                f"Input type ({x.type()}) and weight type ({weight.type()}) should be the same"
                + mkldnn * (x.device.type == "cpu")
            )
    is_foreach = op._schema.name.startswith("aten::_foreach_")
    if torch.Tag.pointwise in op.tags or packet in _TENSOR_ITERATOR or is_foreach:
        first = next(t.device for _, t in named if t.device.type == "sim")
        _raise_two_devices(first, next(t.device for _, t in reversed(named) if t.device != first))
    common = named[0][1].device
    name, other = next((n, t.device) for n, t in named if t.device != common)
    method, name = _CUDA_NAMES.get(packet, (op._schema.name.removeprefix("aten::"), name))
    if method in _STRUCTURED:
        method += "" if op._overloadname in ("default", "out") else f"__{op._overloadname}"
    else:
        method = f"{op._overloadname.replace('default', '')}_{method}"
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but got {name} is on {other}, different "
        f"from other tensors on {common} (when checking argument in method wrapper_SIM_{method})"
    )


CONVOLUTIONS = {aten.convolution, aten.convolution_overrideable, aten._convolution}
_TENSOR_ITERATOR = {  # without the tag pointwise, but on CUDA they use TensorIterator and its message
    aten.mse_loss,
    aten.smooth_l1_loss,
    aten.binary_cross_entropy,
    aten.binary_cross_entropy_with_logits,
    aten.floor_divide,
}
_CUDA_NAMES = {  # the kernel and the argument that CUDA's message names
    aten.embedding: ("index_select", "index"),
    aten.stack: ("cat", "tensors"),
    aten.mv: ("addmv", "vec"),
    aten.convolution: ("cudnn_convolution", "weight"),
}
_STRUCTURED = {  # structured kernels: PyTorch generates other names for their wrappers
    *("addmm", "addmv", "baddbmm", "bmm", "cat", "gather", "index_add", "index_copy", "mm"),
    *("nll_loss_forward", "scatter", "scatter_add", "scatter_reduce", "topk"),
}
