"""Accumulation under a scaler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference, as_tuple

from ..shared.checking import made_batches, one_thread
from .checking import judge_precision, judge_scaler, last_step, same_steps
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


def _two_steps(step: Callable[..., Any], judge: Judge | None = None) -> Callable[..., Any]:
    """Return what makes two steps and says what came of each; a judge looks at how they are made."""

    def run_case(dtype: torch.dtype, sizes: Sequence[int], overflow: bool) -> list[dict[str, Any]]:
        batches = made_batches(sizes, seed=sum(sizes))
        if overflow:
            batches[1] = (batches[1][0] * 1e6, batches[1][1])
        run = Run(use_scaler=dtype is torch.float16, interval=2)
        steps = []
        for _ in range(2):
            with watched(run) if judge else nullcontext():
                step(run.model, batches, run.loss_fn, run.optimizer, run.scaler, dtype)
            if judge:
                judge_precision(run, dtype, judge)
                _judge_order(run, sizes, judge)
                judge_scaler(run, judge)
            steps.append(run.step_made())
        return steps

    return run_case


def _judge_order(run: Run, sizes: Sequence[int], judge: Judge) -> None:
    if max(run.sizes) > max(sizes):
        seen = f"a batch of {max(run.sizes)} went through the model"
        judge.no(seen=seen, expected=f"at most {max(sizes)} at a time")
    if run.log.count("update") > 1:
        judge.no("updates", seen=f"{run.log.count('update')} updates", expected="one update")
    passes = [what for what in run.log if what in ("forward", "backward")]
    if ("forward", "forward") in pairwise(passes):
        judge.no(seen=", ".join(passes), expected="a backward pass after each forward pass")
    if "held" in run.log:
        judge.no(
            "graph-kept",
            seen="the activations of the micro-batch before, at a forward pass",
            expected="memory that backward() has freed",
        )


_ZERO, _BACKWARD = "optimizer.zero_grad()", "scaler.scale(loss).backward()"
_SHARE = " * len(y) / count"
MISTAKES = known_mistakes_of(
    accumulate,
    {
        "by-batches": ({_SHARE: " / len(batches)"}, {_SHARE: " / count"}),
        "not-divided": {_SHARE: " * len(y)"},
        "last-only": {_ZERO: "", _BACKWARD: f"{_ZERO}\n{_BACKWARD}"},
    },
)
_FORM = ComparesToReference(
    _two_steps(accumulate),
    (
        (torch.bfloat16, (4, 2, 5), False),
        (torch.float16, (6, 1, 3), False),
        (torch.float16, (5,), False),
        (torch.float16, (4, 2, 3), True),  # one micro-batch overflows: no step for any of them
    ),
    {name: tuple(map(_two_steps, as_tuple(mistake))) for name, mistake in MISTAKES.items()},
    read=lambda judge, got: got,
    alike=same_steps,
    situation=lambda dtype, sizes, overflow: (
        f"{dtype}, micro-batches of {', '.join(map(str, sizes))}{', one of which overflows' * overflow}"
    ),
    shown=last_step,
)


@one_thread()
def _check_accumulate(answer: Callable[..., Any], judge: Judge) -> None:
    _FORM(_two_steps(answer, judge), judge)


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
        "Ask two questions. How much should each micro-batch count, so that you get the mean over all rows? "
        "And gradients that you add up must all have the same scale. So when may the scale change?",
        "As in lesson 03, each micro-batch counts with its share of the rows. Its backward pass comes "
        "straight after its forward pass, and that frees its graph. `scaler.step` and `scaler.update` come "
        "once, after the last micro-batch, so the scale can't change in between. If one micro-batch "
        "overflows, the scaler then leaves out the whole step.",
        """Here two groups of unequal size add up to the gradient of one mean, without a scaler:

```python
w = torch.tensor(2.0, requires_grad=True)
groups = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0])]
total = sum(len(group) for group in groups)
for group in groups:
    share = len(group) / total
    (share * (w * group).mean()).backward()  # adds to w.grad
print(w.grad)  # tensor(4.), the mean of all four numbers
```""",
    ),
    reference=accumulate,
    check_answer=_check_accumulate,
    why="The scale belongs to a step and not to a micro-batch, because gradients with different scales "
    "can't be added up. `update()` alone between two micro-batches raises an error, but after a `step` "
    "or an `unscale_` it's accepted, and then it can change the scale in the middle of the sum.",
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
