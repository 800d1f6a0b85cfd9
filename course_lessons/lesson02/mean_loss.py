"""Load while the device computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import simgpu
from course_utils.exercises import Exercise, Judge
from simgpu.counters import Counters

from .checking import TOO_EARLY, second


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
        self.values = [((3 * i) % 5) / 2 + 0.25 for i in range(n)]
        self.tensors = [torch.full((64, 256), value) for value in self.values]
        if device.type == "sim":
            self.tensors = [tensor.pin_memory() for tensor in self.tensors]
        self.factor = torch.tensor([2.0], device=device)
        self.steps = self.loaded = self.loaded_at_first_step = self.reads = 0
        self.counted = Counters()

    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the batches, once."""
        self.steps = self.loaded = 0
        for i, tensor in enumerate(self.tensors):
            if self.device.type == "sim":
                simgpu.host_work(_SHORT if i % 2 else _LONG, "load the next batch")
            self.loaded += 1
            yield tensor

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch, as a tensor on the device."""
        loss = (x * self.factor).mean()
        if self.device.type == "sim":
            simgpu.clock(self.device).launch("step", _SHORT if self.steps % 2 else _LONG)
        self.loaded_at_first_step = self.loaded_at_first_step if self.steps else self.loaded
        self.reads = self.counted.copies_to_host
        self.steps += 1
        return loss


def _check_mean_loss(answer: Any, judge: Judge) -> None:
    if simgpu.problem() is not None:
        print("Judged without the simulated device: only the value, not the time.")
    device = torch.device("cpu") if simgpu.problem() is not None else second()
    for n in (5, 8):
        feed = _Feed(n, device)
        if device.type != "sim":
            _judge_mean(answer(feed.batches(), feed.step, device), feed, judge)
            continue
        usual, _ = _modelled(mean_loss_that_waits, feed)
        spent, got = _modelled(answer, feed)
        early = any(c.direction == "device to host" and c.non_blocking for c in feed.counted.copies)
        if early and not feed.counted.synchronizations:
            judge.no(
                "too-early", seen="a non_blocking copy to the host, read without waiting for it"
            )
        _judge_mean(got, feed, judge, "too-early" if early else "wrong-value")
        if feed.counted.races:
            judge.no("race", seen=f"{feed.counted.races} operations used what was still on its way")
        _judge_waits(spent, usual, feed, judge)


def _modelled(answer: Any, feed: _Feed) -> tuple[float, Any]:
    """Return the modelled seconds that an answer took, and what it gave; let the feed count."""
    torch.sim.synchronize()
    clock = simgpu.clock(feed.device)
    with simgpu.count() as feed.counted:
        start = clock.host
        got = answer(feed.batches(), feed.step, feed.device)
        return clock.host - start, got


def _judge_mean(got: Any, feed: _Feed, judge: Judge, otherwise: str = "wrong-value") -> None:
    if isinstance(got, torch.Tensor):
        judge.no("tensor", seen=got, expected="a Python number")
    number = judge.number(got.item() if isinstance(got, np.generic) else got)
    if feed.steps != len(feed.tensors):
        judge.no(
            "other-steps",
            seen=f"step was called {feed.steps} times",
            expected=f"once for each of {len(feed.tensors)} batches",
        )
    losses = [2 * value for value in feed.values]
    right = sum(losses) / len(losses)
    if abs(number - sum(losses)) < 1e-3:
        judge.no("sum", seen=number, expected=right)
    judge.close(number, right, otherwise, rel=1e-4)


def _judge_waits(spent: float, usual: float, feed: _Feed, judge: Judge) -> None:
    n = len(feed.tensors)
    times = {
        "seen": f"{n} batches in {1e3 * spent:.2f} ms (modelled)",
        "expected": f"at most {1e3 * 0.75 * usual:.2f} ms; the loop that waits takes {1e3 * usual:.2f} ms",
    }
    there = [c for c in feed.counted.copies if c.direction == "host to device" and c.bytes >= 1024]
    if spent <= 0.75 * usual:
        return
    if feed.reads == n - 1:  # before the last step
        judge.no("reads-each", **times)
    if any(not c.non_blocking for c in there):
        judge.no("blocking", **times)
    if feed.loaded_at_first_step == n:
        judge.no("loads-first", **times)
    judge.no("reads-some" if feed.reads else "waits", **times)


def mean_loss_that_waits(batches, step, device):
    losses = []
    for batch in batches:
        losses.append(step(batch.to(device)).item())
    return sum(losses) / len(losses)


EXERCISE = Exercise(
    id="02.mean_loss",
    title="Load while the device computes",
    task="`batches` yields tensors in **pinned** host memory; the host takes time to load each, now more, now less. "
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
        "reads-each": "A loss is read in each step: `.item()` waits until the step is done, and only then is the next "
        "batch loaded.",
        "reads-some": "A loss is read in some of the steps: there `.item()` waits until the step is done, and only then "
        "is the next batch loaded.",
        "other-steps": "Each batch should get one step of its own, as in the loop below.",
        "blocking": "Each copy waits for its end, and for all that stands before it in the queue. The batches are "
        "pinned: the copy may go on by itself.",
        "waits": "The host still waits for the device within the loop.",
        "loads-first": "All batches are loaded before the first step, so there is nothing left to hide behind. Launch each step "
        "as soon as its batch is there.",
        "too-early": f"{TOO_EARLY} `.item()` waits for you.",
        "race": "The steps stand in another stream than the copies, and do not wait for them: on a real GPU a step may read "
        "a batch that is not there yet. Let the one stream wait for the other.",
        "sum": "This is the sum of the losses. The mean is asked for.",
        "tensor": "This is still a tensor. Read it at the end: one number, in Python.",
    },
)
