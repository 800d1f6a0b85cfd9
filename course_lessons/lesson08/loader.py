"""A simulated ``DataLoader`` in virtual time, for the loop that waits for its data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

import simgpu
from course_language import _

Batches = Sequence[tuple[Tensor, ...]]


class Loader:
    """A simulated ``DataLoader``: it yields the given batches, and takes virtual time.

    Loading a batch occupies a core of the host for `LOAD` seconds, starting a worker takes the host `START`
    seconds, and there are `CORES` cores. Workers load in parallel to the training, each `AHEAD` batches
    ahead. ``batches`` are tuples of CPU tensors, the options those of ``torch.utils.data.DataLoader``.
    """

    LOAD, START, CORES, AHEAD = 5e-3, 10e-3, 4, 2

    def __init__(
        self,
        batches: Batches,
        num_workers: int = 0,
        pin_memory: bool = False,
        persistent_workers: bool = False,
    ) -> None:
        if persistent_workers and not num_workers:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.batches, self.workers = list(batches), num_workers
        self.pin_memory, self.persistent = pin_memory, persistent_workers
        self._started = False

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return self._load_in_workers() if self.workers else self._load_in_main_process()

    def _load_in_main_process(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield the batches, loaded by the main process."""
        for batch in self.batches:
            simgpu.host_work(self.LOAD, "load a batch")
            pins = self.pin_memory and not simgpu.unavailable_reason()
            yield tuple(t.pin_memory() for t in batch) if pins else batch

    def _load_in_workers(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield the batches, loaded by workers."""
        from simgpu.machine import MACHINE

        if not (self.persistent and self._started):
            simgpu.host_work(self.START * self.workers, "start the workers")
            self._started = True
        each = self.LOAD * max(1.0, self.workers / self.CORES)
        ready: list[float] = []
        taken = [MACHINE.host.now] * (self.AHEAD * self.workers)  # when there was room for a batch
        for number, batch in enumerate(self.batches):
            # Batch by batch in turn: a worker begins when it is done with its last one and has room.
            before = ready[number - self.workers] if number >= self.workers else 0.0
            ready.append(max(before, taken[number]) + each)
            simgpu.host_work(max(0.0, ready[number] - MACHINE.host.now), _("wait for the loader"))
            taken.append(MACHINE.host.now)
            yield tuple(map(_pinned_for_free, batch)) if self.pin_memory else batch


def _pinned_for_free(tensor: Tensor) -> Tensor:
    """Return a pinned copy, at no cost of host time: in a ``DataLoader`` a separate thread makes it."""
    if simgpu.unavailable_reason():
        return tensor
    from simgpu.tensor import mark_pinned

    return mark_pinned(tensor.clone())
