"""What the device says where tensors are in different places: the sentences of CUDA."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from .machine import CPU

aten = torch.ops.aten


def check_indices(args: tuple[Any, ...]) -> None:
    """Let ``x[indices]`` take its indices from the host, and nothing else from another device."""
    target, indices, *values = args
    for index in indices:
        if index is not None and index.device not in (CPU, target.device):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor "
                f"({target.device})"
            )
    if values and values[0].device != target.device and values[0].dim():
        _two_devices(target.device, values[0].device)


def _two_devices(first: torch.device, other: torch.device) -> NoReturn:
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {first} and {other}!"
    )


def mismatch(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> NoReturn:
    """Raise what CUDA raises where tensors are on different devices."""
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
    one_by_one = op._schema.name.startswith("aten::_foreach_")  # what CUDA makes of mixed lists
    if torch.Tag.pointwise in op.tags or packet in _ITERATED or one_by_one:
        first = next(t.device for _, t in named if t.device.type == "sim")
        _two_devices(first, next(t.device for _, t in reversed(named) if t.device != first))
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
_ITERATED = {  # beside those with the tag: in CUDA they go through TensorIterator and use its words
    aten.mse_loss,
    aten.smooth_l1_loss,
    aten.binary_cross_entropy,
    aten.binary_cross_entropy_with_logits,
    aten.floor_divide,
}
_CUDA_NAMES = {  # the kernel and the argument that CUDA's sentence names
    aten.embedding: ("index_select", "index"),
    aten.stack: ("cat", "tensors"),
    aten.mv: ("addmv", "vec"),
    aten.convolution: ("cudnn_convolution", "weight"),
}
_STRUCTURED = {  # operations that PyTorch generates in another way, with other names
    *("addmm", "addmv", "baddbmm", "bmm", "cat", "gather", "index_add", "index_copy", "mm"),
    *("nll_loss_forward", "scatter", "scatter_add", "scatter_reduce", "topk"),
}
