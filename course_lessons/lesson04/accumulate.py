"""Accumulation under a scaler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch

from course_lessons.shared.edited import twins_of, variants
from course_utils.exercises import Exercise, Judge

from ..shared.checking import made_batches, one_thread
from .checking import Play, judge_precision, judge_runs, judge_scaler
from .runs import Run, watched


def accumulate(model, batches, loss_fn, optimizer, scaler, dtype):
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    for x, y in batches:
        with torch.autocast(x.device.type, dtype=dtype):
            loss = loss_fn(model(x), y) * len(y) / count
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


_ZERO, _BACKWARD = "optimizer.zero_grad()", "scaler.scale(loss).backward()"


_weighted = variants(accumulate, " * len(y) / count")
_MISTAKES = {
    "by-batches": _weighted(" / len(batches)", " / count"),
    "not-divided": _weighted(" * len(y)"),
    "last-only": {_ZERO: "", _BACKWARD: f"{_ZERO}\n{_BACKWARD}"},
}
TWINS = twins_of(accumulate, _MISTAKES)


def _play(dtype: torch.dtype, sizes: Sequence[int], overflow: bool) -> Play:
    def play(step: Callable[..., Any], watch: bool) -> Iterator[tuple[Run, Any]]:
        batches = made_batches(sizes, seed=sum(sizes))
        if overflow:
            batches[1] = (batches[1][0] * 1e6, batches[1][1])
        run = Run(use_scaler=dtype is torch.float16, interval=2)
        for _ in range(2):
            run.sizes.clear()
            with watched(run) if watch else nullcontext():
                step(run.model, batches, run.loss_fn, run.optimizer, run.scaler, dtype)
            yield run, None

    return play


@one_thread()
def _check_accumulate(answer: Callable[..., Any], judge: Judge) -> None:
    cases = (
        (torch.bfloat16, (4, 2, 5), False),
        (torch.float16, (6, 1, 3), False),
        (torch.float16, (5,), False),
        (torch.float16, (4, 2, 3), True),  # one micro-batch overflows: no step for any of them
    )
    turns = iter([case for case in cases for _ in range(2)])

    def look(run: Run, _: Any) -> None:
        dtype, sizes, overflow = next(turns)
        judge_precision(run, dtype, judge)
        _judge_order(run, sizes, overflow, judge)
        judge_scaler(run, judge)

    plays = [_play(*case) for case in cases]
    judge_runs(answer, judge, accumulate, TWINS, plays[:-1], look)
    judge_runs(answer, judge, accumulate, {}, plays[-1:], look)


def _judge_order(run: Run, sizes: Sequence[int], overflow: bool, judge: Judge) -> None:
    if max(run.sizes) > max(sizes):
        judge.no(
            seen=f"a batch of {max(run.sizes)} went through the model",
            expected=f"at most {max(sizes)} at a time",
        )
    if sum(run.sizes) < sum(sizes):
        judge.no(
            seen=f"{sum(run.sizes)} of {sum(sizes)} examples went through the model",
            expected="all of them",
        )
    steps = run.log.count("step") + run.log.count("bare step")
    if steps != 1 and not (overflow and steps == 0):
        judge.no(seen=f"{steps} steps", expected="one step")
    if run.log.count("update") > 1:
        judge.no("updates", seen=f"{run.log.count('update')} updates", expected="one update")
    passes = [what for what in run.log if what in ("forward", "backward")]
    missing = passes.count("backward") < passes.count("forward")
    if missing or ("forward", "forward") in pairwise(passes):
        judge.no(
            seen=", ".join(passes),
            expected="a backward pass after each forward pass",
        )
    if "held" in run.log:
        judge.no(
            "graph-kept",
            seen="the activations of the micro-batch before, at a forward pass",
            expected="memory that backward() has freed",
        )


EXERCISE = Exercise(
    id="04.accumulate",
    title="Accumulation under a scaler",
    level=3,
    minutes=12,
    task="""
Accumulation adds up gradients that must all have the same scale. So unscaling, clipping, `step` and
`update` come once, after the last micro-batch (one of the small pieces of a large batch, as in lesson 03).
Write `accumulate(model, batches, loss_fn, optimizer, scaler, dtype)`: **one** mixed-precision optimiser
step for a list of `(x, y)` micro-batches of unequal size, the same as for the one large batch they make.
`loss_fn` returns the mean over a micro-batch. The data says on which device. Only one micro-batch's graph may exist at a time. If one of
them overflows, none counts. Gradients of an earlier step may still be there.
""",
    hints=(
        "Lesson 03's rule holds: a mean over everything weights each micro-batch by its size.",
        "All gradients that are added up must have the same scale. So when may the scale change?",
        "Zero once. For each: forward under autocast, the loss times `len(y)` over the count of all, "
        "scaled backward. Then one `scaler.step` and one `scaler.update`.",
    ),
    reference=accumulate,
    check_answer=_check_accumulate,
    why="The scale belongs to a step, not to a batch. `update()` alone between two micro-batches is refused "
    "with an error. After a `step` or `unscale_` it is accepted, and can change the scale under the sum.",
    diagnoses={
        "by-batches": "Each micro-batch got the same weight, though they are not of one size.",
        "not-divided": "Each mean was multiplied by its size, and nothing was divided by the size of them all.",
        "last-only": "The gradients were set to zero between two micro-batches: only the last one counted.",
        "updates": "The scaler was updated more than once for one step. Its scale must stay the same while "
        "gradients add up.",
        "graph-kept": "After its backward pass the graph of a micro-batch was kept, `retain_graph=True` does that: two were "
        "in memory at once.",
    },
)
