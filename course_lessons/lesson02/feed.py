"""Batches with modelled loading time and a step with modelled time, to judge how an answer overlaps them."""

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
"""Modelled seconds of loads and steps, alternating: if all were equal, a blocking copy would cost nothing."""


class Feed:
    """Pinned batches with a loading time, and a step with a device time; records what an answer does.

    Attributes
    ----------
    loaded_before, read_before
        For each step, the number of batches loaded, and of copies to the host, before it.
    overwritten, let_go
        The number of batches copied on another stream that were overwritten, or freed without
        ``record_stream``, before their step had ended.
    """

    def __init__(self, n: int, device: torch.device) -> None:
        self.device, self.simulated = device, device.type == "sim"
        self.values = [((3 * i) % 5) / 2 + 0.2517 + i / 9 for i in range(n)]
        tensors = [torch.full((64, 256), value) for value in self.values]
        self.tensors = [t.pin_memory() for t in tensors] if self.simulated else tensors
        self.factor = torch.tensor([2.0], device=device)
        self.counted, self.spans = Counters(), []
        self.in_use: dict[int, float] = {}  # by id of a batch, the end of the step that uses it
        self.recorded: set[tuple[int, int]] = set()
        self.let_go = self.overwritten = 0

    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the batches; reset the counts per step."""
        self.loaded = 0
        self.loaded_before, self.read_before = [], []
        for i, tensor in enumerate(self.tensors):
            if self.simulated:
                simgpu.host_work(_SHORT if i % 2 else _LONG, _("load the next batch"))
            self.loaded += 1
            yield tensor

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Run a step on a batch; return the loss, a tensor on the device."""
        loss = (x * self.factor).mean()
        if self.simulated:
            seconds = _SHORT if len(self.read_before) % 2 else _LONG
            stream = torch.sim.current_stream().stream_id
            self._track_use(x, simgpu.clock(self.device).launch("step", seconds, stream))
        self.loaded_before.append(self.loaded)
        self.read_before.append(self.counted.copies_to_host)
        return loss

    def _track_use(self, x: torch.Tensor, step: Any) -> None:
        """Note until when a batch is in use that was copied on another stream than the step's."""
        copies = [s for s in self.spans if s.kind == "copy" and s.lane.endswith("host to device")]
        if not copies or copies[-1].stream == step.stream:
            return
        if id(x) in self.in_use:
            self.overwritten += copies[-1].start < self.in_use[id(x)]
        else:
            weakref.finalize(x, self._on_freed, id(x), step.stream)
        self.in_use[id(x)] = step.end

    def _on_freed(self, x: int, stream: int) -> None:
        """Count a batch that is freed too early, without ``record_stream``."""
        early = simgpu.clock(self.device).host < self.in_use.pop(x)
        self.let_go += early and (x, stream) not in self.recorded
        self.recorded.discard((x, stream))

    def run(self, answer: Any) -> tuple[float, Any]:
        """Run ``answer(batches, step, device)``; return its modelled seconds (0 on the CPU) and its
        result.
        """
        if not self.simulated:
            return 0.0, answer(self.batches(), self.step, self.device)

        def record_stream(x: torch.Tensor, stream: Any) -> None:
            """Replace ``Tensor.record_stream``: note the call."""
            self.recorded.add((id(x), stream.stream_id))

        torch.sim.synchronize()
        recording = mock.patch.object(type(self.factor), "record_stream", record_stream)
        with simgpu.count() as self.counted, simgpu.timeline() as line, recording:
            self.spans, clock = line.spans, simgpu.clock(self.device)
            start = clock.host
            got = answer(self.batches(), self.step, self.device)
            return clock.host - start, got
