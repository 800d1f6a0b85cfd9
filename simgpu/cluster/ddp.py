"""DistributedDataParallel on the simulated cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .ranks import Dist

_DIMENSIONS = 8
"""How many dimensions of a parameter's shape are compared."""


class DistributedDataParallel(nn.Module):
    """Keeps the ranks' replicas of a model equal, as PyTorch's DistributedDataParallel, with one bucket.

    The constructor compares the shapes of the parameters and broadcasts rank 0's parameters and buffers. At
    the end of a backward pass one all_reduce per dtype averages the gradients, unless the forward pass before
    it was inside `no_sync`.

    As in PyTorch, a forward pass communicates too. It broadcasts rank 0's buffers if the previous
    forward pass was a training one, also when the present one is under ``torch.no_grad()``. And the first one
    with gradients after the first backward pass agrees on the order of the buckets. Left out is `join`.

    Parameters
    ----------
    module
        The rank's model.
    dist
        The program's argument, see `run`.
    find_unused_parameters
        Whether parameters may get no gradient in a step.
    broadcast_buffers
        Whether rank 0's buffers are broadcast, by the constructor and in forward passes.
    forward_sync_buffers
        The same for forward passes alone; if given, the constructor broadcasts buffers in any case.

    Raises
    ------
    RuntimeError
        If the ranks' models differ in number or shapes of trainable parameters; if the model has no trainable
        parameter; and in the forward pass after a backward pass that left some of them without gradient.
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
        self.require_forward_param_sync = True  # whether the last forward pass was a training one
        self._dist = dist
        self._trainable = {p: name for name, p in module.named_parameters() if p.requires_grad}
        if not self._trainable:
            raise RuntimeError("DistributedDataParallel needs a parameter that requires a gradient.")
        self._is_reduction_due = False  # whether the next backward pass averages gradients
        self._missing: set[Tensor] = set()
        self._unfinished: list[str] = []
        self._rebuild_buckets = False
        self._rebuilt_buckets = find_unused_parameters  # then PyTorch never does
        self._check_same_parameters()
        sync_at_start = broadcast_buffers if forward_sync_buffers is None else True
        self._broadcast([*module.parameters(), *(module.buffers() if sync_at_start else ())])
        self.forward_sync_buffers = (
            broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        )
        for parameter in self._trainable:
            parameter.register_post_accumulate_grad_hook(self._on_gradient)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module; in PyTorch's cases broadcast buffers first. Return the module's output."""
        if torch.is_grad_enabled():
            if self._unfinished:
                raise RuntimeError(
                    "Expected to have finished reduction in the prior iteration before starting a new one. "
                    f"These parameters got no gradient: {', '.join(self._unfinished)}. Where that is meant, "
                    "pass find_unused_parameters=True."
                )
            if self._rebuild_buckets:
                self._rebuild_buckets, self._rebuilt_buckets = False, True
                self._dist.broadcast(torch.arange(len(self._trainable)), src=0)
        if self.require_forward_param_sync and self.forward_sync_buffers:
            self._broadcast(list(self.module.buffers()))
        output = self.module(*args, **kwargs)
        trains = torch.is_grad_enabled() and self.require_backward_grad_sync
        self.require_forward_param_sync = trains
        if trains:
            self._is_reduction_due, self._missing = True, set(self._trainable)
        return output

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Context manager: do not average gradients in backward passes of forward passes within the block."""
        previous, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = previous

    def _on_gradient(self, parameter: Tensor) -> None:
        """Mark a parameter's gradient as complete; the hook of every trainable parameter.

        The first in a backward pass registers `_finish_backward`.
        """
        if not self._is_reduction_due:
            return
        if len(self._missing) == len(self._trainable):  # the first gradient of this pass
            torch.autograd.Variable._execution_engine.queue_callback(self._finish_backward)
        self._missing.discard(parameter)

    def _finish_backward(self) -> None:
        """Average the gradients over the ranks; called by the autograd engine at the end of a backward pass.

        If gradients are missing and unused parameters were not announced, record their names for `forward`.
        """
        if self._missing and not self.find_unused_parameters:
            self._unfinished = [n for p, n in self._trainable.items() if p in self._missing]
            return
        self._is_reduction_due = False
        self._rebuild_buckets = not self._rebuilt_buckets
        if self.find_unused_parameters:
            used = torch.tensor([p not in self._missing for p in self._trainable], dtype=torch.int32)
            self._dist.all_reduce(used)
            trained = [p for p, ranks in zip(self._trainable, used, strict=True) if ranks]
            for p in trained:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        else:
            trained = list(self._trainable)
        for bucket in _buckets_by_dtype([p.grad for p in trained]):
            bucket.div_(self._dist.get_world_size())
            self._dist.all_reduce(bucket)

    def _check_same_parameters(self) -> None:
        """Raise PyTorch's RuntimeError if trainable parameters differ between ranks in number or shape."""
        rank, count_here = self._dist.get_rank(), torch.tensor([len(self._trainable)])
        counts = [torch.empty_like(count_here) for _ in range(self._dist.get_world_size())]
        self._dist.all_gather(counts, count_here)
        for other_rank, count in enumerate(counts):
            if not torch.equal(count, count_here):
                raise RuntimeError(
                    f"DDP expects same model across all ranks, but Rank {rank} has "
                    f"{count_here.item()} params, while rank {other_rank} has inconsistent "
                    f"{count.item()} params."
                )
        shapes = [list(p.shape) for p in self._trainable]
        own_shapes = torch.tensor([(shape + [-1] * _DIMENSIONS)[:_DIMENSIONS] for shape in shapes])
        shapes_of_rank_0 = own_shapes.clone()
        self._dist.broadcast(shapes_of_rank_0, src=0)
        for number, shape in enumerate(shapes):
            if not torch.equal(shapes_of_rank_0[number], own_shapes[number]):
                raise RuntimeError(
                    f"[{rank}]: params[{number}] in this process with sizes {shape} appears not to match "
                    "sizes of the same param in process 0."
                )

    def _broadcast(self, tensors: list[Tensor]) -> None:
        """Broadcast rank 0's tensors, one bucket per dtype."""
        for bucket in _buckets_by_dtype(tensors):
            self._dist.broadcast(bucket, src=0)


def _buckets_by_dtype(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors of each dtype as one flat tensor; copy its values back when the caller continues."""
    for dtype in dict.fromkeys(t.dtype for t in tensors):
        same_dtype = [t.data for t in tensors if t.dtype == dtype]
        bucket = torch.cat([t.reshape(-1) for t in same_dtype])
        yield bucket
        parts = bucket.split([t.numel() for t in same_dtype])
        for t, values in zip(same_dtype, parts, strict=True):
            t.copy_(values.reshape(t.shape))
