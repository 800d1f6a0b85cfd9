"""Three lines against running out of memory."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.checking import one_thread
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


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


_CPU = torch.device("cpu")
_STEPS = 5


def _training(device: torch.device, *sizes: int) -> tuple[Any, ...]:
    """Return what the loop is called with: a small network, and batches of these sizes."""
    torch.manual_seed(sum(sizes))
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    batches = [(torch.randn(n, 5), torch.randint(4, (n,))) for n in sizes]
    return model, batches, optimizer, device


def _trained(loop: Callable[..., Any], device: torch.device, *sizes: int) -> tuple[Any, Any]:
    """Return what the loop returns for batches of these sizes, and the weights that it leaves."""
    model, *others = _training(device, *sizes)
    return loop(model, *others), list(model.parameters())


def _waits(loop: Callable[..., Any], device: torch.device) -> int:
    case = _training(device, 8, 8, 5)
    with simgpu.count() as counters:
        loop(*case)
    return counters.synchronizations


def _in_memory(loop: Callable[..., Any]) -> tuple[int, int, int]:
    """Return a loop's peak, the bytes by which it grows after its second step, and the blocks freed."""
    held: list[int] = []
    with memory.spare_device("2 GB") as device, memory.Hollow():
        stats = functools.partial(torch.sim.memory_stats, device)
        model = nn.Linear(64, 4096, device="meta").to_empty(device=device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        optimizer.register_step_post_hook(
            lambda *_: held.append(stats()["allocated_bytes.all.current"])
        )
        batch = torch.zeros(1024, 64), torch.zeros(1024, dtype=torch.int64)
        loop(model, [batch] * _STEPS, optimizer, device)
        grown = held[-1] - held[1] if len(held) > 1 else 0
        return stats()["allocated_bytes.all.peak"], grown, stats()["num_device_free"]


_RESULTS = ComparesToReference(
    functools.partial(_trained, steady_loop, _CPU),
    ((60, 60, 20), (9, 7), (30, 4, 8)),
    {},
    read=lambda judge, got: (judge.number(got[0]), got[1]),
    alike=nearly(1e-4),
    situation=lambda *sizes: f"batches of {', '.join(map(str, sizes))}",
)


@one_thread()
@mock.patch("gc.collect", return_value=0)  # counted and left out: it takes long
def _check_steady_loop(answer: Callable[..., Any], judge: Judge, collect: mock.Mock) -> None:
    with nullcontext(_CPU) if simgpu.problem() else memory.spare_device("1 GB") as device:
        _RESULTS(functools.partial(_trained, answer, device), judge)
        waits, least = _waits(answer, device), _waits(steady_loop, device)
    if problem := simgpu.problem():
        print(f"Judged without the simulated device, so not by its memory. {problem}")
        return
    collect.reset_mock()
    (peak, grown, freed), (usual, *_) = _in_memory(answer), _in_memory(steady_loop)
    if grown > 2**20:
        seen = f"{grown:,} bytes more at step {_STEPS} than at step 2"
        judge.no("grows", seen=seen, expected="no more from step to step")
    if peak > usual + 2**20:
        seen = f"{peak:,} bytes at the peak"
        judge.no("higher-peak", seen=seen, expected=f"{usual:,}, as before")
    if freed:
        seen = f"{freed} blocks of the cache given back in {_STEPS} steps"
        judge.no("emptied", seen=seen, expected="none: the next step wants them")
    judge.expect("calls of gc.collect()", collect.call_count, 0, "collects")
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
        "Look for the moment in a step at which memory is fullest. It's somewhere in the middle. Which "
        "large tensor from the step before is still alive then, although nobody needs it?",
        "A name holds its tensor until you delete the name or give it another value. `logits` gets another "
        "value in the forward pass. When does each of the other names get one? `gc.collect()` only helps "
        "with objects that refer to each other in a circle, and there are none here. What `empty_cache()` "
        "gives back, the next step must ask for again.",
        """This loop asks in each turn whether the square of the turn before is still there:

```python
for turn in range(2):
    print("square" in dir())  # False, then True
    number = torch.ones(4) * turn  # from here on, the old number is gone
    square = number**2  # until here, the old square was still alive
```

Which name in your loop is like `square`?""",
    ),
    reference=steady_loop,
    check_answer=_check_steady_loop,
    why="What the end of one step makes lives until its name gets another value, past the fullest moment of "
    "the next step, and with the logits of a large vocabulary that's gigabytes. So `del` that name or "
    "put the step into a function, and leave the cache alone, because the next step wants the same "
    "sizes.",
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
