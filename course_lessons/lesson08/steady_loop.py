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
from course_lessons.shared import memory
from course_lessons.shared.checking import norm, one_thread
from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases, several
from course_utils.exercises.values import nearly

from .checking import plain


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


careful_loop = edited(
    steady_loop,
    {
        "del probabilities": "del x, y, logits, loss, probabilities\ngc.collect()\n"
        "torch.get_device_module(device).empty_cache()"
    },
)


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


def _steady_figures(loop: Callable[..., Any]) -> tuple[int, int, int]:
    """Return a loop's peak in bytes, how much more is held at the last step than at the second, and blocks given back."""
    held: list[int] = []
    with memory.spare_device("2 GB") as device:
        stats = functools.partial(torch.sim.memory_stats, device)
        with torch.device("meta"):
            model = nn.Linear(64, 4096)
        with memory.Hollow():
            model.to_empty(device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            optimizer.register_step_post_hook(
                lambda *_: held.append(stats()["allocated_bytes.all.current"])
            )
            batch = torch.zeros(1024, 64), torch.zeros(1024, dtype=torch.int64)
            loop(model, [batch] * _STEPS, optimizer, device)
        grown = held[-1] - held[1] if len(held) > 1 else 0
        return stats()["allocated_bytes.all.peak"], grown, stats()["num_device_free"]


@functools.cache
def _careful_peak() -> int:
    with _collections():
        return _steady_figures(careful_loop)[0]


def _training(sizes: tuple[int, ...], device: torch.device) -> tuple[Any, ...]:
    """Return what the loop is called with: a small network, and batches of these sizes."""
    torch.manual_seed(sum(sizes))
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    batches = [(torch.randn(n, 5), torch.randint(4, (n,))) for n in sizes]
    return model, batches, optimizer, device


def _on(device: torch.device, loop: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """Return a function of sizes: what the loop returns of such a training, and the weights that it leaves."""

    def trained(*sizes: int) -> tuple[Any, list[Tensor]]:
        model, *others = _training(sizes, device)
        hits = loop(model, *others)
        return plain(hits), [p.detach().cpu() for p in model.parameters()]

    return trained


def _read(judge: Judge, got: tuple[Any, Any]) -> tuple[float, Any]:
    return judge.number(got[0]), got[1]


_SUM = "hits += (probabilities.argmax(1) == y).sum()"
_RETURN = "return hits.item()"
_MISTAKES = {}
TWINS = twins_of(steady_loop, _MISTAKES)


_CPU = torch.device("cpu")
_VALUES = OverCases(
    _on(_CPU, steady_loop),
    ((60, 60, 20), (9, 7), (30, 4, 8)),
    {name: tuple(_on(_CPU, twin) for twin in several(twins)) for name, twins in TWINS.items()},
    read=_read,
    alike=nearly(1e-4),
    situation=lambda *sizes: f"batches of {', '.join(map(str, sizes))}",
    shown=lambda value: f"{value[0]:g} right, and weights of norm {norm(value[1]):.5g}",
)


def _waits(loop: Callable[..., Any], device: torch.device) -> int:
    case = _training((8, 8, 5), device)
    with simgpu.count() as counters:
        loop(*case)
    return counters.synchronizations


@one_thread()
def _check_steady_loop(answer: Callable[..., Any], judge: Judge) -> None:
    own = memory.spare_device("1 GB") if not simgpu.problem() else nullcontext(_CPU)
    with own as device, _collections() as calls:
        _VALUES(_on(device, answer), judge)
        waits, least = _waits(answer, device), _waits(steady_loop, device)
    if problem := simgpu.problem():
        print(f"Judged without the simulated device, so not by its memory. {problem}")
        return
    with _collections():
        peak, grown, given_back = _steady_figures(answer)
    if grown > 2**20:
        judge.no(
            "grows",
            seen=f"{grown:,} bytes more at step {_STEPS} than at step 2",
            expected="no more from step to step",
        )
    if peak > _careful_peak() + 2**20:
        judge.no(
            "higher-peak",
            seen=f"{peak:,} bytes at the peak",
            expected=f"{_careful_peak():,}, as before",
        )
    if given_back:
        judge.no(
            "emptied",
            seen=f"{given_back} blocks of the cache given back in {_STEPS} steps",
            expected="none: the next step wants them",
        )
    if calls:
        judge.no("collects", seen=f"{len(calls)} calls of gc.collect()", expected="none")
    if waits > least:
        judge.no("waits", seen=f"the host waited {waits} times", expected=f"{least} times")


EXERCISE = Exercise(
    id="08.steady_loop",
    title="Three lines against running out of memory",
    level=2,
    minutes=6,
    task="""
After an out-of-memory error somebody ended the body of this loop with three lines: `del`, `gc.collect()` and
`empty_cache()`. A part of one of them lowers the peak; the rest costs time, or does nothing. Write
`steady_loop(model, batches, optimizer, device)` without what does not help. It trains as before, at no higher peak
and with no more waits of the host, and returns how many samples were classified right, each by the output of its own
step.
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
    why="What the end of one turn makes lives until its name is given anew, past the highest moment of the next turn. "
    "With the logits of a large vocabulary that is gigabytes. `del` the name, do without the tensor (the largest logit "
    "is the largest probability), or put the step into a function, whose names end with it. The cache needs no help: "
    "the next step wants the same sizes.",
    diagnoses={
        "emptied": "The cache is still given back to the driver, and asked for again in each step. On a GPU "
        "both make the host wait.",
        "collects": "`gc.collect()` walks through all objects of the process, and frees no tensor here.",
        "higher-peak": "The peak is higher than before. A large tensor of one step is still alive when the next "
        "one needs most.",
        "grows": "With each step more memory is held: something keeps a tensor of every step.",
        "waits": "The host waits more often than in the loop as it was. The sum can stay on the device until the end.",
    },
)
