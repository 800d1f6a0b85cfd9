"""Load while the device computes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch

import simgpu
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import nearly
from simgpu.counters import Counters

from .checking import second


def mean_loss(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device, non_blocking=True)))
    return torch.stack(losses).mean().item()


_LONG, _SHORT = 7e-4, 1e-4
"""Modelled seconds, by turns, to load a batch and to make a step: with equal ones a blocking copy would cost nothing."""


class _Feed:
    """Pinned batches that take time to load, and a step that takes time on the device."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.device = device
        self.values = [((3 * i) % 5) / 2 + 0.2517 + i / 9 for i in range(n)]
        self.tensors = [torch.full((64, 256), value) for value in self.values]
        if device.type == "sim":
            self.tensors = [tensor.pin_memory() for tensor in self.tensors]
        self.factor = torch.tensor([2.0], device=device)
        self.counted, self.spans = Counters(), []
        self.in_use: dict[int, float] = {}  # when the step ends that uses a batch
        self.recorded: set[tuple[int, int]] = set()
        self.let_go = self.overwritten = 0

    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the batches, once."""
        self.loaded = 0
        self.loaded_before, self.read_before = [], []  # of each step
        for i, tensor in enumerate(self.tensors):
            if self.device.type == "sim":
                simgpu.host_work(_SHORT if i % 2 else _LONG, "load the next batch")
            self.loaded += 1
            yield tensor

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, as a tensor on the device."""
        loss = (x * self.factor).mean()
        if self.device.type == "sim":
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

    def record(self, x: torch.Tensor, stream: Any) -> None:
        """Note what ``record_stream`` is told."""
        self.recorded.add((id(x), stream.stream_id))

    def run(self, answer: Any) -> tuple[float, Any]:
        """Return the modelled seconds that an answer took, and what it gave."""
        if self.device.type != "sim":
            return 0.0, answer(self.batches(), self.step, self.device)
        torch.sim.synchronize()
        clock = simgpu.clock(self.device)
        recording = mock.patch.object(
            type(self.factor), "record_stream", lambda *of: self.record(*of)
        )
        with simgpu.count() as self.counted, simgpu.timeline() as line, recording:
            self.spans = line.spans
            start = clock.host
            got = answer(self.batches(), self.step, self.device)
            return clock.host - start, got


def _check_mean_loss(answer: Any, judge: Judge) -> None:
    if simgpu.unavailable_reason() is not None:
        print("Judged without the simulated device: only the value, not the time.")
    device = torch.device("cpu") if simgpu.unavailable_reason() is not None else second()
    for n in (5, 8, 6):
        feed = _Feed(n, device)
        usual, _ = feed.run(mean_loss_that_waits)
        spent, value = feed.run(answer)
        if isinstance(value, torch.Tensor):
            judge.no(seen=f"a tensor on {value.device}", expected="a Python number")
        value = judge.number(value)
        judge.expect("calls of step", len(feed.read_before), n)
        counted = feed.counted
        early = any(c.direction == "device to host" and c.non_blocking for c in counted.copies)
        if early and not counted.synchronizations:
            judge.no(seen="a non_blocking copy to the host, read without waiting for it")
        judge.expect("mean loss", value, 2 * sum(feed.values) / n, alike=nearly(1e-5, 1e-6))
        if counted.races:
            judge.no("race", seen=f"{counted.races} operations used what was still on its way")
        if feed.overwritten:
            judge.no(seen=f"{feed.overwritten} copies into a batch still in use")
        if feed.let_go:
            judge.no("let-go", seen=f"{feed.let_go} batches dropped while their step was under way")
        if spent > 0.75 * usual:
            diagnosis = "wrong-value"
            if feed.read_before == list(range(n)):
                diagnosis = "reads-each"
            elif any(
                not c.non_blocking and c.code == "h2d" and c.bytes > 999 for c in counted.copies
            ):
                diagnosis = "blocking"
            elif feed.loaded_before[0] == n:
                diagnosis = "loads-first"
            judge.no(
                diagnosis,
                seen=f"{n} batches in {1e3 * spent:.2f} ms (modelled)",
                expected=f"at most {1e3 * 0.75 * usual:.2f} ms; the loop that waits takes {1e3 * usual:.2f} ms",
            )


def mean_loss_that_waits(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device)).item())
    return sum(losses) / len(losses)


EXERCISE = Exercise(
    id="02.mean_loss",
    title="Load while the device computes",
    task="`batches` yields tensors of one shape in **pinned** host memory; the host takes time to load each, now more, now less. "
    "`step(x)` takes a batch on the device and gives its loss there, as a tensor; some steps are longer than others. "
    "The loop below returns the right mean, but host, bus and device wait for one another. Return the same "
    "number in at most three quarters of its (modelled) time.",
    level=3,
    minutes=12,
    hints=(
        "While the device computes one step, the host could load the next batch already. Which two "
        "calls in the loop make the host wait instead?",
        "The batches are pinned, so a copy may go on by itself, and `non_blocking=True` asks for that. "
        "On the device, the step still comes after the copy, because both are in one queue. `.item()` "
        "is different, because Python can't have the number before the step is done. You only need one "
        "number, so keep the losses on the device until the loop is over.",
        "Here a loop counts right answers, and reads the count only once.\n\n"
        """```python
labels = torch.tensor([1, 0, 2, 2])
hits = torch.zeros((), dtype=torch.int64, device=labels.device)
for guesses in (torch.tensor([1, 1, 2, 0]), torch.tensor([1, 0, 2, 0])):
    hits += (guesses == labels).sum()  # on a GPU, nobody waits here
print(hits.item())  # 5
```""",
    ),
    reference=mean_loss,
    check_answer=_check_mean_loss,
    why="The host now runs ahead, so a long load hides behind a long step. On one stream, a copy still "
    "waits its turn behind the steps, but a second stream lets copies overlap with computing, as "
    "long as each step waits for its batch (`wait_stream`) and the batch's memory is held until "
    "the step is done (`record_stream`).",
    diagnoses={
        "reads-each": "A loss is read in each step. Who reads waits until the step is done, as `.item()` does, and only "
        "then is the next batch loaded.",
        "blocking": "Each copy waits for its end, and for all that stands before it in the queue. The batches are "
        "pinned: the copy may go on by itself.",
        "loads-first": "All batches are loaded before the first step, so there is nothing left to hide behind. Launch each step "
        "as soon as its batch is there.",
        "race": "The steps stand in another stream than the copies, and do not wait for them: on a real GPU a step may read "
        "a batch that is not there yet. Let the one stream wait for the other.",
        "let-go": "A batch is copied on one stream and used on another, and Python drops it while its step is still under way: "
        "on a real GPU the next copy may take its memory. Say `x.record_stream(...)`, with the stream that uses it.",
    },
)
