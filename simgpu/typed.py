"""``torch.sim.FloatTensor`` and its like: the types by which old programs made tensors on a device."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

_DTYPES = {
    "Float": torch.float32,
    "Double": torch.float64,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "Byte": torch.uint8,
    "Char": torch.int8,
    "Short": torch.int16,
    "Int": torch.int32,
    "Long": torch.int64,
    "Bool": torch.bool,
}
_PREFIX = "torch.sim."


class _TensorType(type):
    """The class of these types: a call makes a tensor on the device, ``isinstance`` asks the dtype."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> Tensor:
        on_host = getattr(torch, cls.__name__)(*(x.cpu() if isinstance(x, Tensor) else x for x in args))
        return on_host.to("sim")

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and x.device.type == "sim" and x.dtype is cls.dtype


_TYPES = {
    f"{name}Tensor": _TensorType(f"{name}Tensor", (), {"dtype": dtype, "__module__": "torch.sim"})
    for name, dtype in _DTYPES.items()
}


def named(name: str) -> type | None:
    """Return the type with this name, such as ``"FloatTensor"``, or None."""
    return _TYPES.get(name)


def register() -> None:
    """Let ``Tensor.type`` convert to these types, and to their names such as ``"torch.sim.FloatTensor"``."""
    plain = Tensor.type

    @functools.wraps(plain)
    def type_(self: Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dtype, str) and dtype.startswith(_PREFIX):
            dtype = _TYPES.get(dtype.removeprefix(_PREFIX), dtype)
        if isinstance(dtype, _TensorType):
            return self.to("sim", dtype.dtype, *args, **kwargs)
        return plain(self, dtype, *args, **kwargs) if dtype is not None else plain(self)

    Tensor.type = type_
