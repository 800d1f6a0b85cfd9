"""Accumulation under a scaler."""

from itertools import pairwise

import torch

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise

from ..shared.checking import made_batches
from .checking import judge_precision, judge_scaler, over_runs
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


def _case_runner(step, judge=None):
    """Return a function that runs a case and returns what two steps did.

    With a ``judge`` it also judges precision, order of calls and use of the scaler.
    The reference and the known mistakes are run without one.
    """

    def run_case(dtype, sizes, overflow):
        batches = made_batches(sizes, seed=sum(sizes))
        if overflow:
            batches[1] = (batches[1][0] * 1e6, batches[1][1])
        run = Run(use_scaler=dtype is torch.float16, interval=2)
        steps = []
        for _ in range(2):
            with watched(run, judge):
                step(run.model, batches, run.loss_fn, run.optimizer, run.scaler, dtype)
            if judge:
                judge_precision(run, dtype, judge)
                _judge_call_order(run, sizes, judge)
                judge_scaler(run, judge)
            steps.append(run.step_made())
        return steps

    return run_case


def _judge_call_order(run, sizes, judge):
    """Refuse batches that are too large, more than one update, or graphs that are kept too long."""
    if max(run.sizes) > max(sizes):
        seen = _("a batch of {max_sizes} went through the model").format(max_sizes=max(run.sizes))
        judge.no(seen=seen, expected=_("at most {max_sizes} at a time").format(max_sizes=max(sizes)))
    if run.log.count("update") > 1:
        judge.no(
            "updates",
            seen=_("{count} updates").format(count=run.log.count("update")),
            expected=_("one update"),
        )
    passes = [call for call in run.log if call in ("forward", "backward")]
    if ("forward", "forward") in pairwise(passes):
        judge.no(seen=", ".join(passes), expected=_("a backward pass after each forward pass"))
    if "held" in run.log:
        seen = _("the activations of the micro-batch before, at a forward pass")
        judge.no("graph-kept", seen=seen, expected=_("memory that backward() has freed"))


def _describe_case(dtype, sizes, overflow):
    """Return the case in words."""
    words = _("{dtype}, micro-batches of {sizes}").format(dtype=dtype, sizes=", ".join(map(str, sizes)))
    return _("{words}, one of which overflows").format(words=words) if overflow else words


_ZERO, _BACKWARD = "optimizer.zero_grad()", "scaler.scale(loss).backward()"
_SHARE = " * len(y) / count"
MISTAKES = known_mistakes_of(
    accumulate,
    {
        "by-batches": {_SHARE: " / len(batches)"},
        "not-divided": {_SHARE: " * len(y)"},
        "last-only": {_ZERO: "", _BACKWARD: f"{_ZERO}\n{_BACKWARD}"},
    },
)
_CASES = (
    (torch.bfloat16, (4, 2, 5), False),
    (torch.float16, (6, 1, 3), False),
    (torch.float16, (5,), False),
    (torch.float16, (4, 2, 3), True),  # one micro-batch overflows: no step for any of them
)
_check_answer = over_runs(_case_runner, accumulate, _CASES, MISTAKES, _describe_case)


EXERCISE = Exercise(
    id="05.accumulate",
    title="Accumulation under a scaler",
    level=3,
    minutes=12,
    task="""
Accumulation adds up gradients that must all have the same scale. So unscaling, clipping, `step` and
`update` come once, after the last micro-batch (one of the small pieces of a large batch, as in lesson 03).
Write `accumulate(model, batches, loss_fn, optimizer, scaler, dtype)`: **one** mixed-precision optimiser
step for a list of `(x, y)` micro-batches of unequal size, the same as for the one large batch they make.
`loss_fn` returns the mean over a micro-batch. The data says on which device. Only one micro-batch's graph
may exist at a time. If one of them overflows, none counts. Gradients of an earlier step may still be there.
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
    check_answer=_check_answer,
    why="The scale belongs to a step and not to a micro-batch, because gradients with different scales "
    "can't be added up. `update()` alone between two micro-batches raises an error, but after a `step` "
    "or an `unscale_` it's accepted, and then it can change the scale in the middle of the sum.",
    diagnoses={
        "by-batches": "Each micro-batch got the same weight, though they are not of one size.",
        "not-divided": "Each mean was multiplied by its size, and nothing was divided by the size of them "
        "all.",
        "last-only": "The gradients were set to zero between two micro-batches: only the last one counted.",
        "updates": "The scaler was updated more than once for one step. Its scale must stay the same while "
        "gradients add up.",
        "graph-kept": "After its backward pass the graph of a micro-batch was kept, `retain_graph=True` does "
        "that: two were in memory at once.",
    },
)
