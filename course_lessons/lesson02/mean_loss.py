"""Load while the device computes."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch

import simgpu
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import nearly, several
from simgpu.counters import Counters

from .checking import second


def mean_loss(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device, non_blocking=True)))
    return torch.stack(losses).mean().item()


_LONG, _SHORT = 7e-4, 1e-4
"""Modelled seconds, by turns, for the host to load a batch and for the device to make a step.

They differ so that a copy that blocks costs time: with equal ones the host would have nothing to gain
from running more than one step ahead.
"""


class _Feed:
    """Pinned batches that take time to load, and a step that takes time on the device."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.device = device
        self.values = [((3 * i) % 5) / 2 + 0.2517 + i / 9 for i in range(n)]
        self.tensors = [torch.full((64, 256), value) for value in self.values]
        if device.type == "sim":
            self.tensors = [tensor.pin_memory() for tensor in self.tensors]
        self.factor = torch.tensor([2.0], device=device)
        self.steps = self.loaded = self.loaded_at_first_step = self.reads = 0
        self.looks: set[int] = set()  # the numbers of reads there had been when a step began
        self.counted, self.spans = Counters(), []
        self.in_use: dict[int, float] = {}
        self.recorded: set[tuple[int, int]] = set()
        self.let_go = self.overwritten = 0

    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the batches, once."""
        self.steps = self.loaded = 0
        self.looks.clear()
        for i, tensor in enumerate(self.tensors):
            if self.device.type == "sim":
                simgpu.host_work(_SHORT if i % 2 else _LONG, "load the next batch")
            self.loaded += 1
            yield tensor

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, as a tensor on the device."""
        loss = (x * self.factor).mean()
        if self.device.type == "sim":
            stream = torch.sim.current_stream().stream_id
            seconds = _SHORT if self.steps % 2 else _LONG
            self._watch(x, simgpu.clock(self.device).launch("step", seconds, stream))
        self.loaded_at_first_step = self.loaded_at_first_step if self.steps else self.loaded
        self.reads = self.counted.copies_to_host
        self.looks.add(self.reads)
        self.steps += 1
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


_TWINS = {}


def _check_mean_loss(answer: Any, judge: Judge) -> None:
    if simgpu.problem() is not None:
        print("Judged without the simulated device: only the value, not the time.")
    device = torch.device("cpu") if simgpu.problem() is not None else second()
    feeds = [_Feed(n, device) for n in (5, 8, 6)]
    spent, got = [], []
    for feed in feeds:
        usual, _ = _modelled(mean_loss_that_waits, feed)
        seconds, value = _modelled(answer, feed)
        spent.append((seconds, usual))
        if isinstance(value, torch.Tensor):
            judge.no(seen=f"a tensor on {value.device}", expected="a Python number")
        got.append(judge.number(value.item() if isinstance(value, np.generic) else value))
        if feed.steps != len(feed.tensors):
            judge.no(
                seen=f"step was called {feed.steps} times",
                expected=f"once for each of {len(feed.tensors)} batches",
            )
        early = any(c.direction == "device to host" and c.non_blocking for c in feed.counted.copies)
        if early and not feed.counted.synchronizations:
            judge.no(seen="a non_blocking copy to the host, read without waiting for it")
    losses = [[2 * value for value in feed.values] for feed in feeds]
    judge.closest(
        got,
        [sum(each) / len(each) for each in losses],
        {name: [list(map(twin, losses)) for twin in several(t)] for name, t in _TWINS.items()},
        alike=nearly(1e-5, 1e-6),
    )
    for feed, (seconds, usual) in zip(feeds, spent, strict=True):
        if feed.counted.races:
            judge.no("race", seen=f"{feed.counted.races} operations used what was still on its way")
        if feed.overwritten:
            judge.no(seen=f"{feed.overwritten} copies into a batch still in use")
        if feed.let_go:
            judge.no("let-go", seen=f"{feed.let_go} batches dropped while their step was under way")
        _judge_waits(seconds, usual, feed, judge)


def _modelled(answer: Any, feed: _Feed) -> tuple[float, Any]:
    """Return the modelled seconds that an answer took, and what it gave; let the feed count."""
    if feed.device.type != "sim":
        return 0.0, answer(feed.batches(), feed.step, feed.device)
    torch.sim.synchronize()
    clock = simgpu.clock(feed.device)

    def record(x: torch.Tensor, stream: Any) -> None:
        feed.recorded.add((id(x), stream.stream_id))

    with (
        simgpu.count() as feed.counted,
        simgpu.timeline() as line,
        mock.patch.object(type(feed.factor), "record_stream", record),
    ):
        feed.spans = line.spans
        start = clock.host
        got = answer(feed.batches(), feed.step, feed.device)
        return clock.host - start, got


def _judge_waits(spent: float, usual: float, feed: _Feed, judge: Judge) -> None:
    n = len(feed.tensors)
    times = {
        "seen": f"{n} batches in {1e3 * spent:.2f} ms (modelled)",
        "expected": f"at most {1e3 * 0.75 * usual:.2f} ms; the loop that waits takes {1e3 * usual:.2f} ms",
    }
    there = [c for c in feed.counted.copies if c.direction == "host to device" and c.bytes >= 1024]
    if spent <= 0.75 * usual:
        return
    if feed.reads == n - 1 == len(feed.looks) - 1:  # before the last step, one after each
        judge.no("reads-each", **times)
    if any(not c.non_blocking for c in there):
        judge.no("blocking", **times)
    if feed.loaded_at_first_step == n:
        judge.no("loads-first", **times)
    judge.no(**times)


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
        "While the device computes one step, the host could load the next batch. Which two calls in the loop make "
        "the host wait?",
        "The copy need not block: its source is pinned. And a loss need not be read in each step.",
        "Keep the losses as tensors on the device, with `torch.stack` at the end, and read one number when all "
        "steps are under way.",
    ),
    reference=mean_loss,
    check_answer=_check_mean_loss,
    why="The host now runs ahead, as far as it can, so a long load hides behind a long step wherever it comes. On one stream the copies still stand "
    "in the same queue as the steps; a second one lets them overlap with computing as well, where each step waits for its batch (`wait_stream`) and "
    "the batch's memory is held until the step is done (`record_stream`).",
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
