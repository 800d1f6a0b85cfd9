"""Counts collectives and the bytes they carry."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_KINDS = {
    "_allgather_base_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "allreduce_": "all_reduce",
    "all_reduce": "all_reduce",
}


class Sent(TorchDispatchMode):
    """A context manager that counts collectives by kind, and the bytes of the whole tensors that they carry.

    Attributes
    ----------
    calls, bytes
        Counts by kind: ``"all_gather"``, ``"reduce_scatter"`` or ``"all_reduce"``.

    Examples
    --------
    >>> with Sent() as sent:
    ...     loss = model(x).sum()
    >>> sent.bytes["all_gather"]
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        kind = _KINDS.get(func._opname) if "c10d" in func.namespace else None
        if kind:
            tensors = [t for t in tree_leaves((args, out)) if isinstance(t, torch.Tensor)]
            self.calls[kind] += 1
            self.bytes[kind] += max(t.nbytes for t in tensors)
        return out
