"""Batches that take time to load and a step that takes time, on the simulated device's clock."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

import simgpu
from course_language import _
from simgpu.counters import Counters

_LONG, _SHORT = 7e-4, 1e-4
"""Modelled seconds, by turns, of a load and a step; were they equal, a blocking copy would cost nothing."""


class Feed:
    """Pinned batches that take time to load, and a step that takes time on the device.

    Attributes
    ----------
    loaded_before, read_before
        For each step, how many batches were loaded and how many copies to the host made before it.
    overwritten, let_go
        Batches copied on another stream that were written over, or freed, while their step was under way.
    """

    def __init__(self, n: int, device: torch.device) -> None:
        self.device, self.simulated = device, device.type == "sim"
        self.values = [((3 * i) % 5) / 2 + 0.2517 + i / 9 for i in range(n)]
        tensors = [torch.full((64, 256), value) for value in self.values]
        self.tensors = [t.pin_memory() for t in tensors] if self.simulated else tensors
        self.factor = torch.tensor([2.0], device=device)
        self.counted, self.spans = Counters(), []
        self.in_use: dict[int, float] = {}  # when the step ends that uses a batch
        self.recorded: set[tuple[int, int]] = set()
        self.let_go = self.overwritten = 0

    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the batches, once."""
        self.loaded = 0
        self.loaded_before, self.read_before = [], []
        for i, tensor in enumerate(self.tensors):
            if self.simulated:
                simgpu.host_work(_SHORT if i % 2 else _LONG, _("load the next batch"))
            self.loaded += 1
            yield tensor

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, as a tensor on the device."""
        loss = (x * self.factor).mean()
        if self.simulated:
            seconds = _SHORT if len(self.read_before) % 2 else _LONG
            stream = torch.sim.current_stream().stream_id
            self._watch(x, simgpu.clock(self.device).launch("step", seconds, stream))
        self.loaded_before.append(self.loaded)
        self.read_before.append(self.counted.copies_to_host)
        return loss

    def _watch(self, x: torch.Tensor, step: Any) -> None:
        """Watch a batch that was copied on one stream and is used on another until the step is done."""
        copies = [s for s in self.spans if s.kind == "copy" and s.lane.endswith("host to device")]
        if not copies or copies[-1].stream == step.stream:
            return
        if id(x) in self.in_use:
            self.overwritten += copies[-1].start < self.in_use[id(x)]
        else:
            weakref.finalize(x, self._dropped, id(x), step.stream)
        self.in_use[id(x)] = step.end

    def _dropped(self, x: int, stream: int) -> None:
        early = simgpu.clock(self.device).host < self.in_use.pop(x)
        self.let_go += early and (x, stream) not in self.recorded
        self.recorded.discard((x, stream))

    def run(self, answer: Any) -> tuple[float, Any]:
        """Return the modelled seconds that an answer took, and what it gave."""
        if not self.simulated:
            return 0.0, answer(self.batches(), self.step, self.device)

        def record_stream(x: torch.Tensor, stream: Any) -> None:
            self.recorded.add((id(x), stream.stream_id))

        torch.sim.synchronize()
        recording = mock.patch.object(type(self.factor), "record_stream", record_stream)
        with simgpu.count() as self.counted, simgpu.timeline() as line, recording:
            self.spans, clock = line.spans, simgpu.clock(self.device)
            start = clock.host
            got = answer(self.batches(), self.step, self.device)
            return clock.host - start, got
