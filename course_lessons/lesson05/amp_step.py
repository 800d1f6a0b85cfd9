"""One mixed-precision step, on any device."""

import torch

from course_language import _
from course_utils.exercises import Exercise

from ..shared.checking import made_batches
from .checking import PRECISION, REFUSED, judge_precision, judge_scaler, over_runs
from .runs import Run, watched


def amp_step(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _case_runner(step, judge=None):
    """Return a function that runs a case and returns what five steps did, with their losses.

    With a ``judge`` it also judges precision, waits, use of the scaler and type of the loss.
    The reference and the known mistakes are run without one.
    """

    def run_case(dtype):
        run = Run(use_scaler=dtype is torch.float16)
        steps = []
        for number, (x, y) in enumerate(made_batches((4, 5, 3, 4, 4))):
            if number == 2 and dtype is torch.float16:
                x = x * 1e6  # float16 overflows: this step is to be left out
            with watched(run, judge):
                got = step(run.model, x, y, run.loss_fn, run.optimizer, run.scaler, dtype)
            if judge:
                judge_precision(run, dtype, judge)
                if "get_scale" in run.log and run.scaler.is_enabled():
                    run.waits.append("get_scale")
                if run.waits:
                    judge.no("waits", seen=f"{run.waits[0]}()", expected=_("no call that waits"))
                judge_scaler(run, judge)
                judge.is_a(got, torch.Tensor, _("a tensor"))
                if got.requires_grad:
                    judge.no(seen=repr(got), expected=_("the loss without its graph"))
                if got.dtype not in (torch.float32, torch.float64):
                    judge.no(seen=got.dtype, expected=torch.float32)
            steps.append(run.step_made(got.item()))
        return steps

    return run_case


_check_answer = over_runs(_case_runner, amp_step, ((torch.bfloat16,), (torch.float16,)), {})


EXERCISE = Exercise(
    id="05.amp_step",
    title="One mixed-precision step, on any device",
    level=2,
    minutes=10,
    task="""
Write `amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)`: one training step in mixed precision
with `dtype` (float16 or bfloat16), on whatever device `x` is. `scaler` is a `GradScaler`, which may be
disabled. Return the unscaled loss as a detached tensor. Don't call `.item()`, which would wait.
Gradients of an earlier step may still be there.
""",
    hints=(
        "Ask which lines belong under autocast. Only the forward pass and the loss do, because the backward "
        "pass uses the dtypes that the forward pass chose. Autocast also has to know the device, and `x` "
        "can tell you.",
        "The scaler takes part three times. Its `scale` multiplies the loss before backward, its `step` "
        "lets the optimiser step unless gradients overflowed, and its `update` sets the next scale. A "
        "disabled scaler changes nothing, so you need no `if`. Old gradients have to go first, and the loss "
        "you return needs `detach()`, which doesn't wait for the device.",
        "Here somebody scales by hand, with a fixed scale of 1024. In your step, the scaler does this "
        "work:\n\n"
        """```python
w = torch.ones(3, requires_grad=True)
points = torch.randn(5, 3)
with torch.autocast(points.device.type, dtype=torch.bfloat16):
    height = (points @ w).square().mean()
(1024 * height).backward()
w.grad /= 1024  # now it's the true gradient
print(height.detach())
```""",
    ),
    reference=amp_step,
    check_answer=_check_answer,
    why="You need no `if` for the device or the format, because a disabled scaler passes everything "
    "through. Your weights stay in float32, and autocast makes 16-bit copies of them where they help.",
    diagnoses={
        **PRECISION,
        **REFUSED,
        "waits": "Reading a tensor (`.item()`, `float()`, `if`), moving it to the CPU, `get_scale()` and "
        "`synchronize()` wait for the device. Return the loss as it is, a tensor where it was made.",
    },
)
