"""Challenge: 900 MB of training in 300 MB."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.checking import Alive, how_far_off, keeps, norm, one_thread
from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.judge import Raised
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


@one_thread()
def _check_frugal_step(answer: Callable[..., Any], judge: Judge) -> None:
    _judge_values(answer, judge)
    if simgpu.problem():
        print("Judged without the simulated device: the result, and the activations that are kept.")
        return
    usual, most = _plain_cost()
    try:
        seconds, _ = step_cost(answer, ROOM)
    except Raised as problem:
        if not isinstance(problem.error, torch.OutOfMemoryError):
            raise
        first = str(problem.error).split(" GPU ")[0]
        judge.no(
            "does-not-fit", seen=first, expected=f"a step in {ROOM}; plain takes {most:,} bytes"
        )
    if seconds > TIME * usual:
        judge.no(
            "too-dear",
            seen=f"{seconds / usual:.2f} times the modelled time of the plain step",
            expected=f"at most {TIME} times",
        )


def _judge_values(answer: Callable[..., Any], judge: Judge) -> None:
    """Train a narrow network on the CPU, on few rows and on all, and compare with the plain steps."""
    for sizes in ((10, 13, 11), (ROWS,)):
        right = _plain_steps(sizes)
        try:
            got = _steps(keeps(answer, judge, 1, 2), sizes)
        except Raised as problem:
            if not isinstance(problem.error, _TooMany):
                raise
            judge.no("too-many-passes", seen=str(problem.error), expected="a few")
        if got["dtypes"] != right["dtypes"]:
            judge.no("other-dtype", seen=f"weights in {got['dtypes']}", expected=right["dtypes"])
        if any(isinstance(loss, Tensor) and loss.requires_grad for loss in got["losses"]):
            judge.no(
                "keeps-graph", seen="a loss that requires a gradient", expected="a detached one"
            )
        losses, usual = ([judge.number(loss) for loss in run["losses"]] for run in (got, right))
        if not norm(got["moved"]):
            judge.no("no-step", seen="the same weights as before", expected="an optimizer step")
        off = how_far_off(got["moved"], right["moved"])
        if off > TOLERANCE:
            rows = ", ".join(f"{n:,}" for n in sizes)
            judge.no(
                _why_off(got, sizes),
                seen=f"weights whose change is {off:.1%} off that of the plain steps ({rows} rows)",
                expected=f"at most {TOLERANCE:.0%} off",
            )
        most = TOLERANCE if off > 1e-4 else 1e-4  # no 16 bits in the change: none in the loss
        if any(abs(a - b) > most * b for a, b in zip(losses, usual, strict=True)):
            judge.no(_why_loss(losses, usual, sizes), seen=losses, expected=usual)
    if simgpu.problem() and got["peak"] > 0.5 * right["peak"]:
        judge.no(
            "does-not-fit",
            seen=f"at most {got['peak']:,} bytes of activations at once",
            expected=f"at most {0.5 * right['peak']:,.0f} bytes",
        )


MOST_PASSES = 12  # a step of more cannot be quick enough
TOLERANCE = 0.02
"""How far the change of the weights may be from the plain steps': 16-bit formats round."""


def _why_off(got: dict[str, Any], sizes: tuple[int, ...]) -> str:
    if got["steps"] > len(sizes):
        return "many-steps"
    if got["rows"] < sum(sizes):
        return "left-out"
    for diagnosis, steps in FRUGAL_TWINS.items():
        for step in several(steps):
            if how_far_off(got["moved"], _twin_moved(step, sizes)) < TOLERANCE:
                return diagnosis
    return "other-step"


class _TooMany(Exception): ...


def _why_loss(losses: list[float], usual: list[float], sizes: tuple[int, ...]) -> str:
    for name, twin in _LOSS_TWINS.items():
        like = [float(loss) for loss in _steps(twin, sizes)["losses"]]
        if all(math.isclose(a, b, rel_tol=1e-4) for a, b in zip(losses, like, strict=True)):
            return name
    return "other-loss"


def _steps(step: Callable[..., Any], sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return what steps of so many rows do to a narrow network.

    That is losses, change of the weights, activations alive, updates, and rows that went in.
    """
    torch.manual_seed(0)
    watch = Alive()
    model = challenge_model(4, 8) if sizes == (ROWS,) else challenge_model(8, 16)
    before = [p.detach().clone() for p in model.parameters()]
    for block in model[:-1]:
        block.watch = watch
    # With momentum, several small updates do not add up to a large one.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, steps, rows = [], [], []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    model[0].register_forward_pre_hook(lambda _, args: note(len(args[0])))

    def note(n: int) -> None:
        rows.append(n)
        if len(rows) > MOST_PASSES and sizes == (ROWS,):
            raise _TooMany(
                f"more than {MOST_PASSES} passes through the first block for {ROWS:,} rows"
            )

    for size in sizes:
        x, y = torch.randn(size, model[-1].in_features), torch.randint(10, (size,))
        losses.append(step(model, x, y, F.cross_entropy, optimizer))
    moved = [p.detach() - b for p, b in zip(model.parameters(), before, strict=True)]
    return {
        "losses": losses,
        "moved": moved,
        "peak": watch.peak,
        "steps": len(steps),
        "rows": sum(rows),
        "dtypes": ", ".join(sorted({str(p.dtype) for p in model.parameters()})),
    }


@functools.cache
def _twin_moved(step: Callable[..., Any], sizes: tuple[int, ...]) -> list[Tensor]:
    return _steps(step, sizes)["moved"]


@functools.cache
def _plain_steps(sizes: tuple[int, ...]) -> dict[str, Any]:
    return _steps(plain_step, sizes)


@elsewhere.there
def step_cost(step: Callable[..., Any], room: str) -> tuple[float, int]:
    """Return what one step of the challenge costs on a simulated T4: modelled seconds, bytes at most.

    Memory and time are those of the full size. The tensors have no values, so it takes neither here.

    Parameters
    ----------
    step
        ``frugal_step`` or ``plain_step``.
    room
        The device's memory, such as ``"300 MB"``.
    """
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


def _parts(cut: str, share: str) -> tuple[Callable[..., Any], ...]:
    """Return twins that take the batch in N parts, for some N."""
    edits = {"x.chunk(4), y.chunk(4)": f"x.{cut}, y.{cut}", _SHARE: share}.items()
    return tuple(edited(frugal_step, {a: b.replace("N", n) for a, b in edits}) for n in "428")


_SHARE = " * len(rows) / len(x)"
_ZERO_EACH = {"optimizer.zero_grad()": "", "loss = ": "optimizer.zero_grad()\nloss = "}
_MISTAKES = {
    "summed": _parts("chunk(N)", ""),
    "mean-of-means": _parts("chunk(N)", " / N"),
    "fixed-share": _parts(f"split({ROWS} // N)", " / N"),
    "by-rows": {_SHARE: " * len(rows)"},
    "piles-up": ({"optimizer.zero_grad()": ""}, {"optimizer.zero_grad()": "", _SHARE: " / 4"}),
    "last-part": ({**_ZERO_EACH, _SHARE: ""}, _ZERO_EACH),
}
FRUGAL_TWINS = twins_of(frugal_step, _MISTAKES)
_ADD, _MEANS = "total += loss.detach()", "loss.detach() * len(x) / len(rows)"
_LOSS_TWINS_MISTAKES = {
    "last-loss": {_ADD: f"total = {_MEANS}"},
    "loss-of-means": {_ADD: f"total += {_MEANS} / 4"},
    "loss-summed": {_ADD: f"total += {_MEANS}"},
}
_LOSS_TWINS = twins_of(frugal_step, _LOSS_TWINS_MISTAKES)


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
        "What takes the memory? The parameters here are less than 2 MB. Which of the lesson's methods make the "
        "rest smaller, and what does each cost in time?",
        "The whole batch need not be in the forward pass at once. How is the mean of parts of unequal size "
        "put together?",
        "Go through `x.chunk(n)` and `y.chunk(n)`; each part's loss counts with its share of the rows; "
        "`backward()` adds up; one `optimizer.step()`. Many small parts cost launches, so take few.",
    ),
    reference=frugal_step,
    check_answer=_check_frugal_step,
    why="The same lines help a network that is too large for a real card. Which method is cheapest depends on the "
    "network and on the card: measure two before you choose.",
    diagnoses={
        "does-not-fit": "The step needs more memory than there is.",
        "too-dear": "It fits, but it takes too long. Every piece of work costs launches, the bus is slow, and a T4 has no "
        "bfloat16 (use `torch.float16`). Computing something twice can cost less.",
        "too-many-passes": "The first block runs more than twelve times in one step, and each run costs launches: that takes too long.",
        "by-rows": "Each part's loss is multiplied by its rows, and nothing divides by the rows of all parts.",
        "other-dtype": "The weights themselves have another dtype now.",
        "last-loss": "The loss given back is that of the last part alone. The weights are right.",
        "loss-of-means": "The loss given back is the mean of the parts' means. The parts are not equally large. The weights are right.",
        "loss-summed": "The loss given back is the sum of the parts' means. The weights are right.",
        "summed": "The gradients are several times too large: each part's loss is a mean over its own rows, and "
        "the parts are added up.",
        "mean-of-means": "The parts are not equally large, and a small one counts as much as a large one.",
        "fixed-share": "Each part counts with one and the same share, whatever the batch. A smaller batch has fewer parts: weight each by "
        "its rows.",
        "piles-up": "The gradients of the step before are still in the sum.",
        "many-steps": "The optimizer changed the weights after each part. The parts belong to one step: their "
        "gradients add up first.",
        "last-part": "Only the last part's gradients were left: `zero_grad()` belongs before all parts, not "
        "before each.",
        "left-out": "Not all rows of the batch went through the network.",
        "other-step": "The weights are not those of the plain steps.",
        "no-step": "The weights did not change.",
        "other-loss": "The loss given back is not the mean over the batch. The weights are right.",
        "keeps-graph": "The loss given back still has its graph. Detach it, so that nothing is kept.",
    },
    limit=60.0,
    may_change=True,
)
