"""One mixed-precision step, on any device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases

from ..shared.checking import made_batches, one_thread
from .checking import PRECISION, REFUSED, judge_precision, judge_scaler, last_step, same_steps
from .runs import Run, watched


def amp_step(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def _steps(step: Callable[..., Any], judge: Judge | None = None) -> Callable[..., Any]:
    """Return what makes five steps and says what came of each; a judge looks at how they are made."""

    def run_case(dtype: torch.dtype) -> list[dict[str, Any]]:
        run = Run(use_scaler=dtype is torch.float16)
        steps = []
        for number, (x, y) in enumerate(made_batches((4, 5, 3, 4, 4))):
            if number == 2 and dtype is torch.float16:
                x = x * 1e6  # float16 overflows: this step is to be left out
            with watched(run) if judge else nullcontext():
                got = step(run.model, x, y, run.loss_fn, run.optimizer, run.scaler, dtype)
            if judge:
                judge_precision(run, dtype, judge)
                if "get_scale" in run.log and run.scaler.is_enabled():
                    run.waits.append("get_scale")
                if run.waits:
                    judge.no("waits", seen=f"{run.waits[0]}()", expected="no call that waits")
                judge_scaler(run, judge)
                judge.is_a(got, torch.Tensor, "a tensor")
                if got.requires_grad:
                    judge.no(seen=repr(got), expected="the loss without its graph")
                if got.dtype not in (torch.float32, torch.float64):
                    judge.no(seen=got.dtype, expected=torch.float32)
            steps.append(run.step_made(got.item()))
        return steps

    return run_case


_FORM = OverCases(
    _steps(amp_step),
    ((torch.bfloat16,), (torch.float16,)),
    {},
    read=lambda judge, got: got,
    alike=same_steps,
    shown=last_step,
)


@one_thread()
def _check_amp_step(answer: Callable[..., Any], judge: Judge) -> None:
    _FORM(_steps(answer, judge), judge)


EXERCISE = Exercise(
    id="04.amp_step",
    title="One mixed-precision step, on any device",
    level=2,
    minutes=10,
    task="""
Write `amp_step(model, x, y, loss_fn, optimizer, scaler, dtype)`: one training step in mixed precision
with `dtype` (float16 or bfloat16), on whatever device `x` is. `scaler` is a `GradScaler`; it is disabled
where none is needed, and the same lines must serve. Return the loss, unscaled, without its graph, and
without waiting for it. Gradients of an earlier step may still be there.
""",
    hints=(
        "What runs under autocast? The forward pass and the loss, no more. Which device? `x` knows.",
        "A scaler takes part three times: it scales the loss, it makes the optimiser step, and it "
        "updates itself.",
        "`scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`; old gradients "
        "go first. `loss.detach()` comes back.",
    ),
    reference=amp_step,
    check_answer=_check_amp_step,
    why="No `if` is needed for the device, and none for the format: a disabled scaler passes "
    "everything through. The weights stay in float32; autocast makes 16-bit copies where they help.",
    diagnoses={
        **PRECISION,
        **REFUSED,
        "waits": "Reading a tensor (`.item()`, `float()`, `if`), moving it to the CPU, `get_scale()` and "
        "`synchronize()` wait for the device. Return the loss as it is, a tensor where it was made.",
    },
)
