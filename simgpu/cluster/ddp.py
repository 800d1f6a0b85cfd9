"""DistributedDataParallel on the simulated cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .ranks import Dist

_DIMENSIONS = 8
"""How many dimensions of a parameter are compared."""


class DistributedDataParallel(nn.Module):
    """Keeps the copies of a model alike: what PyTorch's class of that name does, in one bucket.

    At the start the ranks compare the shapes of their parameters, and rank 0's parameters and buffers are
    broadcast. When a backward pass has made every gradient, one all_reduce averages them. Whether it does is
    decided by the forward pass before: inside `no_sync` it does not.

    As in PyTorch, a forward pass communicates too. It broadcasts rank 0's buffers where the forward pass
    before it was one that trains, also when the present one is under ``torch.no_grad()``. And the first one
    with gradients after the first backward pass agrees on the order of the buckets. Left out is `join`.

    Parameters
    ----------
    module
        The model; each rank has its own.
    dist
        What the program got from `run`.
    find_unused_parameters
        Whether a step may leave parameters without a gradient.
    broadcast_buffers
        Whether rank 0's buffers are broadcast, at the start and in forward passes.
    forward_sync_buffers
        The same for forward passes alone; where given, buffers are broadcast at the start.

    Raises
    ------
    RuntimeError
        Where the ranks' models differ in number or shapes of trainable parameters; where the model has
        nothing to train; and in the forward pass after a backward pass that made some gradients and not all.
    """

    def __init__(
        self,
        module: nn.Module,
        dist: Dist,
        find_unused_parameters: bool = False,
        broadcast_buffers: bool = True,
        forward_sync_buffers: bool | None = None,
    ) -> None:
        super().__init__()
        self.module = module
        self.find_unused_parameters = find_unused_parameters
        self.require_backward_grad_sync = True
        self.require_forward_param_sync = True  # what the last forward pass decided
        self._dist = dist
        self._trained = {p: name for name, p in module.named_parameters() if p.requires_grad}
        if not self._trained:
            raise RuntimeError("DistributedDataParallel needs a parameter that requires a gradient.")
        self._expected = False  # whether the coming backward pass is to be averaged
        self._missing: set[Tensor] = set()
        self._unfinished: list[str] = []
        self._rebuild_buckets = False
        self._rebuilt_buckets = find_unused_parameters  # then PyTorch never does
        self._check_alike()
        sync_at_start = broadcast_buffers if forward_sync_buffers is None else True
        self._broadcast([*module.parameters(), *(module.buffers() if sync_at_start else ())])
        self.forward_sync_buffers = (
            broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        )
        for parameter in self._trained:
            parameter.register_post_accumulate_grad_hook(self._ready)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        if torch.is_grad_enabled():
            if self._unfinished:
                raise RuntimeError(
                    "Expected to have finished reduction in the prior iteration before starting a new one. "
                    f"These parameters got no gradient: {', '.join(self._unfinished)}. Where that is meant, "
                    "pass find_unused_parameters=True."
                )
            if self._rebuild_buckets:
                self._rebuild_buckets, self._rebuilt_buckets = False, True
                self._dist.broadcast(torch.arange(len(self._trained)), src=0)
        if self.require_forward_param_sync and self.forward_sync_buffers:
            self._broadcast(list(self.module.buffers()))
        output = self.module(*args, **kwargs)
        trains = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = trains
        if trains:
            self._expected, self._missing = True, set(self._trained)
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let forward passes within the block, and their backward passes, leave gradients as they are."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def _ready(self, parameter: Tensor) -> None:
        if not self._expected:
            return
        if len(self._missing) == len(self._trained):  # the first: see to the end of this pass
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self._missing.discard(parameter)

    def _finish(self) -> None:
        if self._missing and not self.find_unused_parameters:
            self._unfinished = [n for p, n in self._trained.items() if p in self._missing]
            return
        self._expected = False
        self._rebuild_buckets = not self._rebuilt_buckets
        if self.find_unused_parameters:
            used = torch.tensor([p not in self._missing for p in self._trained], dtype=torch.int32)
            self._dist.all_reduce(used)
            trained = [p for p, ranks in zip(self._trained, used, strict=True) if ranks]
            for p in trained:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        else:
            trained = list(self._trained)
        for bucket in _flat([p.grad for p in trained]):
            bucket.div_(self._dist.get_world_size())
            self._dist.all_reduce(bucket)

    def _check_alike(self) -> None:
        """Refuse models that differ from rank to rank, in PyTorch's words."""
        rank, count_here = self._dist.get_rank(), torch.tensor([len(self._trained)])
        counts = [torch.empty_like(count_here) for _ in range(self._dist.get_world_size())]
        self._dist.all_gather(counts, count_here)
        for other, count in enumerate(counts):
            if not torch.equal(count, count_here):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank {rank} has "
                    f"{count_here.item()} params, while rank {other} has inconsistent {count.item()} params."
                )
        shapes = [list(p.shape) for p in self._trained]
        sent = torch.tensor([(shape + [-1] * _DIMENSIONS)[:_DIMENSIONS] for shape in shapes])
        first = sent.clone()
        self._dist.broadcast(first, src=0)
        for number, shape in enumerate(shapes):
            if not torch.equal(first[number], sent[number]):
                raise RuntimeError(
                    f"[{rank}]: params[{number}] in this process with sizes {shape} appears not to match "
                    "sizes of the same param in process 0."
                )

    def _broadcast(self, tensors: list[Tensor]) -> None:
        for bucket in _flat(tensors):
            self._dist.broadcast(bucket, src=0)


def _flat(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the values of all tensors of a dtype as one tensor, and put them back after it was used."""
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        same_dtype = [t.data for t in tensors if t.dtype == dtype]
        bucket = torch.cat([t.reshape(-1) for t in same_dtype])
        yield bucket
        parts = bucket.split([t.numel() for t in same_dtype])
        for t, values in zip(same_dtype, parts, strict=True):
            t.copy_(values.reshape(t.shape))
