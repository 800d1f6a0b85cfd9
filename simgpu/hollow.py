"""Tensors with memory and time and without values: what a training would need, computed without it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from .machine import MACHINE
from .tensor import SimTensor, run


class Hollow(TorchDispatchMode):
    """Within it, new tensors on the simulated device have sizes and memory, and no values.

    Every operation takes memory and modelled time as usual, and computes nothing. What is copied to the
    CPU is zero, and so is ``.item()``, which makes the host wait as it does where there is a value.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shapes_only = _ShapesOnly(allow_non_fake_inputs=True)

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        to_device = getattr(kwargs.get("device"), "type", "") == "sim"
        of_device = any(isinstance(x, SimTensor) for x in tree_leaves((args, kwargs)))
        if not to_device and not of_device:
            return op(*args, **kwargs)
        if op is torch.ops.aten._local_scalar_dense.default:
            MACHINE.copy(MACHINE.device(args[0].device), "d2h", args[0].element_size())
            return 0
        if op is torch.ops.aten._to_copy.default and not of_device:
            with self:
                made = torch.empty_like(args[0], dtype=kwargs.get("dtype"), device=kwargs["device"])
                return made.copy_(args[0], kwargs.get("non_blocking", False))
        if op.is_view:  # of the tensor as it is: in this mode it would be a copy, and take memory
            return run(op, args, kwargs)
        with self._shapes_only:
            out = run(op, args, kwargs)
        return tree_map_only(FakeTensor, _zeros, out)


class _ShapesOnly(FakeTensorMode):
    """Fake tensors of the CPU.

    Where CUDA is not to be had, PyTorch up to 2.11 sets a guard for it that belongs to the thread, in a
    table of the process: once the thread has ended, the next thread that enters a fake mode ends the
    process. Tensors of the CPU need no such guard.
    """

    avoid_device_init = False


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros(like.shape, dtype=like.dtype)
