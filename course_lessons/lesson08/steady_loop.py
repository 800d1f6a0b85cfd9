"""Three lines against running out of memory."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared.checking import how_far_off, one_thread
from course_utils import memory
from course_utils.exercises import Exercise, Judge


def steady_loop(model, batches, optimizer, device):
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        hits += (probabilities.argmax(1) == y).sum()
        del probabilities
    return hits.item()


def careful_loop(model, batches, optimizer, device):
    """The loop as it is shipped."""
    hits = 0
    for x, y in batches:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        probabilities = logits.detach().softmax(1)
        hits += (probabilities.argmax(1) == y).sum()
        del x, y, logits, loss, probabilities
        gc.collect()
        torch.get_device_module(device).empty_cache()
    return hits.item()


@contextmanager
def _collections() -> Iterator[list[int]]:
    """Count the calls of ``gc.collect`` within the block, and leave out what they do: it takes long."""
    calls: list[int] = []
    collect = gc.collect

    def counted(*args: Any) -> int:
        calls.append(1)
        return 0

    gc.collect = counted
    try:
        yield calls
    finally:
        gc.collect = collect


_STEPS = 5


def _steady_figures(loop: Callable[..., Any]) -> tuple[int, int]:
    """Return a loop's peak in bytes, and how often it asks the driver for memory after two steps."""
    asked: list[int] = []
    with memory.spare_device("2 GB") as device:
        stats = functools.partial(torch.sim.memory_stats, device)
        with torch.device("meta"):
            model = nn.Linear(64, 4096)
        with memory.Hollow():
            model.to_empty(device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.register_step_post_hook(lambda *_: asked.append(stats()["num_device_alloc"]))
            batch = torch.zeros(1024, 64), torch.zeros(1024, dtype=torch.int64)
            loop(model, [batch] * _STEPS, optimizer, device)
        return stats()["allocated_bytes.all.peak"], (asked[-1] - asked[1] if len(asked) > 1 else 0)


@functools.cache
def _careful_peak() -> int:
    with _collections():
        return _steady_figures(careful_loop)[0]


def _small_training(loop: Callable[..., Any]) -> tuple[Any, list[Tensor], int]:
    """Train a small network; return what the loop returned, the change of the weights, and how often the host waited."""
    torch.manual_seed(3)
    own = memory.spare_device("1 GB") if not simgpu.problem() else nullcontext(torch.device("cpu"))
    with own as device, _collections():
        model = nn.Linear(5, 4).to(device)
        before = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        batches = [(torch.randn(n, 5), torch.randint(4, (n,))) for n in (60, 60, 20)]
        with simgpu.count() as counters:
            got = loop(model, batches, optimizer, device)
        moved = zip(model.parameters(), before, strict=True)
        moves = [(after.detach() - start).cpu() for after, start in moved]
        return got, moves, counters.synchronizations


@one_thread()
def _check_steady_loop(answer: Callable[..., Any], judge: Judge) -> None:
    got, moved, waits = _small_training(answer)
    right, usual, least = _small_training(steady_loop)
    if judge.number(got) != right:
        judge.no("other-hits", seen=got, expected=right)
    if how_far_off(moved, usual) > 1e-4:
        judge.no("other-weights", seen="other weights at the end", expected="those of the loop")
    if problem := simgpu.problem():
        print(f"Judged without the simulated device, so not by its memory. {problem}")
        return
    with _collections() as calls:
        peak, asked = _steady_figures(answer)
    if asked:
        judge.no(
            "emptied",
            seen=f"{asked} requests to the driver after the second of {_STEPS} steps",
            expected="none: the cache serves them",
        )
    if len(calls) > 1:
        judge.no("collects", seen=f"{len(calls)} calls of gc.collect()", expected="none")
    if waits > least:
        judge.no("waits", seen=f"the host waited {waits} times", expected=f"{least} times")
    if peak > _careful_peak() + 2**20:
        judge.no(
            "higher-peak",
            seen=f"{peak:,} bytes at the peak",
            expected=f"{_careful_peak():,}, as before",
        )


EXERCISE = Exercise(
    id="08.steady_loop",
    title="Three lines against running out of memory",
    level=2,
    minutes=6,
    task="""
After an out-of-memory error somebody ended the body of this loop with three lines: `del`, `gc.collect()` and
`empty_cache()`. A part of one of them lowers the peak. The rest costs time, or does nothing. Write
`steady_loop(model, batches, optimizer, device)` without what does not help. It trains as before, needs no more
memory at its highest moment, lets the host wait no more often, and returns how many samples were classified
right, each by the output of its own step.
""",
    hints=(
        "The memory is fullest in the middle of a step. Which large tensor of the step before is still alive "
        "then?",
        "A name holds its tensor until it gets another one. `logits` gets another in the forward pass. And "
        "`probabilities`?",
        "`gc.collect()` finds objects that refer to each other, and there are none here. What `empty_cache()` "
        "gives back, the next step must ask for again. Of the `del`, one name is worth it.",
    ),
    reference=steady_loop,
    check_answer=_check_steady_loop,
    why="What the end of one turn makes is still alive at the highest moment of the next, because its name is "
    "only then given anew. With the logits of a large vocabulary that is gigabytes. `del` the name, do without "
    "the tensor (the largest logit is the largest probability), or put the step into a function, whose names "
    "end with it. The cache needs no help: the next step wants the same sizes.",
    diagnoses={
        "emptied": "The cache is still given back to the driver, and asked for again in each step. On a GPU "
        "both make the host wait.",
        "collects": "`gc.collect()` walks through all objects of the process, and frees no tensor here.",
        "higher-peak": "The peak is higher than before. A large tensor of one step is still alive when the next "
        "one needs most.",
        "waits": "The host waits for the count in each step. Leave the sum on the device, and read it once.",
        "other-hits": "That is not how many were right, each by the output of its own step.",
        "other-weights": "The model is not trained as before.",
    },
)
