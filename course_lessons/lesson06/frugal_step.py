"""Challenge: 900 MB of training in 300 MB."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.checking import Alive, how_far_off, keeps, one_thread
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised
from course_utils.exercises.values import nearly
from simgpu import elsewhere

from .checking import ROWS, WIDTH, challenge_model


def frugal_step(model, x, y, loss_fn, optimizer):
    optimizer.zero_grad()
    total = 0.0
    for rows, labels in zip(x.chunk(4), y.chunk(4), strict=True):
        loss = loss_fn(model(rows), labels) * len(rows) / len(x)
        loss.backward()
        total += loss.detach()
    optimizer.step()
    return total


ROOM, TIME = "300 MB", 1.6
"""The memory it must train in, and the most time it may take, as a multiple of the plain step's."""


def plain_step(model, x, y, loss_fn, optimizer):
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


@elsewhere.there
def step_cost(step: Callable[..., Any], room: str) -> tuple[float, int]:
    """Return what one step of the challenge costs on a simulated T4: modelled seconds, bytes at most. Tensors have no values."""
    with memory.spare_device(room) as device:
        with torch.device("meta"):
            model = challenge_model()
        with memory.Hollow():
            model.to_empty(device=device)
            x = torch.empty(ROWS, WIDTH, device=device)
            y = torch.zeros(ROWS, dtype=torch.int64, device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.sim.synchronize(device)
            start = simgpu.clock(device).host
            step(model, x, y, F.cross_entropy, optimizer)
            torch.sim.synchronize(device)
        return simgpu.clock(device).host - start, torch.sim.max_memory_allocated(device)


@functools.cache
def _plain_cost() -> tuple[float, int]:
    return step_cost(plain_step, "2 GB")


_SHARE, _CHUNKS = " * len(rows) / len(x)", "x.chunk(4), y.chunk(4)"
_ZERO_EACH = {"optimizer.zero_grad()": "", "loss = ": "optimizer.zero_grad()\nloss = "}
_MISTAKES = {
    "mean-of-means": (
        {_SHARE: " / 4"},
        {_CHUNKS: "x.chunk(2), y.chunk(2)", _SHARE: " / 2"},
        {_SHARE: ""},
    ),
    "last-part": ({**_ZERO_EACH, _SHARE: ""}, _ZERO_EACH),
}
FRUGAL_MISTAKES = known_mistakes_of(frugal_step, _MISTAKES)
MOST_PASSES = 12  # a step of more cannot be quick enough
TOLERANCE = 0.02
"""How far the change of the weights may be from the plain step's: 16-bit formats round."""


def _after(step: Callable[..., Any], size: int) -> SimpleNamespace:
    """Return what a step of so many rows does to a narrow network on the CPU, and what it takes."""
    torch.manual_seed(size)
    model = challenge_model(4, 8) if size == ROWS else challenge_model(8, 16)
    x, y = torch.randn(size, model[-1].in_features), torch.randint(10, (size,))
    F.cross_entropy(model(x[:9]), y[:9]).backward()  # gradients that zero_grad() must clear
    before = [p.detach().clone() for p in model.parameters()]
    watch, passes, updates = Alive(), [], []
    for block in model[:-1]:
        block.watch = watch
    model[0].calls = passes
    # With momentum, several small updates do not add up to a large one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.register_step_post_hook(lambda *_: updates.append(1))
    loss = step(model, x, y, F.cross_entropy, optimizer)
    change = [p.detach() - b for p, b in zip(model.parameters(), before, strict=True)]
    dtypes = {p.dtype for p in model.parameters()}
    return SimpleNamespace(
        loss=loss,
        change=change,
        dtypes=dtypes,
        peak=watch.peak,
        passes=len(passes),
        updates=len(updates),
    )


@functools.cache
def _plain(size: int) -> SimpleNamespace:
    return _after(plain_step, size)


@one_thread()
def _check_frugal_step(answer: Callable[..., Any], judge: Judge) -> None:
    for size in (10, 13, 11, ROWS):
        right, got = _plain(size), _after(keeps(answer, judge, 1, 2), size)
        if size == ROWS and got.passes > MOST_PASSES:
            seen = f"{got.passes} passes through the first block for {ROWS:,} rows"
            judge.no("too-dear", seen=seen, expected=f"at most {MOST_PASSES}")
        judge.expect("dtypes of the weights", got.dtypes, {torch.float32})
        judge.expect("a loss with a graph", getattr(got.loss, "requires_grad", False), False)
        if (off := how_far_off(got.change, right.change)) > TOLERANCE:
            known_mistakes = (
                (name, mistake) for name, several in FRUGAL_MISTAKES.items() for mistake in several
            )
            like = [
                n
                for n, t in known_mistakes
                if how_far_off(got.change, _after(t, size).change) < TOLERANCE
            ]
            judge.no(
                "many-steps" if got.updates > 1 else [*like, "wrong-value"][0],
                seen=f"weights whose change is {off:.1%} off that of the plain step ({size:,} rows)",
                expected=f"at most {TOLERANCE:.0%} off",
            )
        most = TOLERANCE if off > 1e-4 else 1e-4  # no 16 bits in the change: none in the loss
        judge.expect("loss", judge.number(got.loss), float(right.loss), alike=nearly(most, 0.0))
    if simgpu.problem():
        print("Judged without the simulated device: the result, and the activations that are kept.")
        if got.peak > 0.5 * right.peak:
            seen = f"at most {got.peak:,} bytes of activations at once"
            judge.no("does-not-fit", seen=seen, expected=f"at most {0.5 * right.peak:,.0f} bytes")
        return
    usual, most_bytes = _plain_cost()
    try:
        seconds, _ = step_cost(answer, ROOM)
    except Raised as problem:
        if not isinstance(problem.error, torch.OutOfMemoryError):
            raise
        first = str(problem.error).split(" GPU ")[0]
        wanted = f"a step in {ROOM}; plain takes {most_bytes:,} bytes"
        judge.no("does-not-fit", seen=first, expected=wanted)
    if seconds > TIME * usual:
        seen = f"{seconds / usual:.2f} times the modelled time of the plain step"
        judge.no("too-dear", seen=seen, expected=f"at most {TIME} times")


EXERCISE = Exercise(
    id="06.frugal_step",
    title="Challenge: 900 MB of training in 300 MB",
    level=3,
    minutes=25,
    task="""
`plain_step` needs almost 900 MB for this network and batch. Write `frugal_step(model, x, y, loss_fn,
optimizer)`: the same training step, for smaller batches and networks too, with the same loss given back
(detached) and the same change of the weights; with this batch on a simulated T4 of **300 MB**, at no more than
**1.6 times** the modelled time of `plain_step`. `loss_fn` is a mean over the batch; `model` can be walked through
block by block. In 16 bits the change of the weights may be 2 % off, and so may the loss. More than one method is right.
""",
    hints=(
        "Where do the 900 MB go? The parameters take less than 2 MB here, so look at what grows with the "
        "batch. Which of the lesson's methods make it smaller, and what does each of them cost in time?",
        "You could compute blocks twice, use 16 bits, or send the batch through in parts. With parts, "
        "`backward()` adds up the gradients, and each part's activations are gone before the next part "
        "comes. Think about which calls belong before all parts, and which after the last. A part's loss is "
        "a mean over its own rows only. And every part costs launches, so take few.",
        """Here the mean of five numbers is put together from parts of unequal size:

```python
prices = torch.tensor([2.0, 4.0, 6.0, 8.0, 20.0])
mean = 0.0
for part in prices.chunk(3):  # 2, 2 and 1 of them
    mean += part.mean() * len(part) / len(prices)
print(mean, prices.mean())  # tensor(8.) tensor(8.)
```""",
    ),
    reference=frugal_step,
    check_answer=_check_frugal_step,
    why="The same lines help a network that is too large for a real card. Which method is cheapest depends on the "
    "network and on the card: measure two before you choose.",
    diagnoses={
        "does-not-fit": "The step needs more memory than there is.",
        "too-dear": "Your step takes too long. Every piece of work costs launches, the bus is slow, and a T4 has no "
        "bfloat16 (use `torch.float16`). Computing something twice can cost less.",
        "mean-of-means": "Each part's loss is a mean over its own rows. It has to count with the part's share of the rows in "
        "the batch.",
        "many-steps": "The optimizer changed the weights after each part. The parts belong to one step: their "
        "gradients add up first.",
        "last-part": "Only the last part's gradients were left: `zero_grad()` belongs before all parts, not "
        "before each.",
    },
    limit=60.0,
    may_change=True,
)
