"""One mixed-precision step, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited

from ..shared.checking import one_thread
from .checking import (
    REFUSED,
    Run,
    judge_precision,
    judge_result,
    judge_scaler,
    made_batches,
    watched,
)


def amp_step(model, x, y, loss_fn, optimizer, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


@one_thread()
def _check_amp_step(answer: Callable[..., Any], judge: Judge) -> None:
    waits: list[str] = []
    for dtype in (torch.bfloat16, torch.float16):
        run, right, piled = (Run(use_scaler=dtype is torch.float16) for _ in range(3))
        for number, (x, y) in enumerate(made_batches((4, 5, 3, 4, 4))):
            if number == 2 and dtype is torch.float16:
                x = x * 1e6  # float16 overflows: this step is to be left out
            parts = [
                (r.model, x, y, r.loss_fn, r.optimizer, r.scaler, dtype)
                for r in (run, right, piled)
            ]
            with watched(run):
                got = answer(*parts[0])
            waits += run.waits
            if "get_scale" in run.log and run.scaler.is_enabled():
                waits.append("get_scale")
            expected = amp_step(*parts[1])
            amp_without_zero(*parts[2])
            judge_precision(run, dtype, judge)
            judge_scaler(run, judge)
            judge_result(run, right, judge, {"piles-up": piled})
            if waits and not isinstance(got, torch.Tensor):
                break
            judge.is_a(got, torch.Tensor, "a tensor")
            if got.requires_grad:
                judge.no("keeps-graph", seen=got, expected="the loss without its graph")
            if torch.isfinite(expected):
                judge.close(got, expected.item(), "scaled-loss", rel=1e-3)
    if waits:
        judge.no("waits", seen=f"{waits[0]}()", expected="no call that waits")


amp_without_zero = edited(amp_step, {"optimizer.zero_grad()": ""})


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
        "half-model": "The weights themselves are now in 16 bits: small updates vanish when they are added. "
        "With autocast the model stays in float32.",
        "named-device": "Autocast was asked for one device by name, and the data is on another: there it "
        "does nothing at all. Ask the data where it is.",
        "no-autocast": "The layers did not compute in the dtype that was asked for.",
        "loss-outside": "The loss was computed after autocast had ended, in the 16-bit dtype of the "
        "outputs. Under autocast it is computed in float32.",
        "backward-inside": "`backward()` ran under autocast. It uses the dtypes of the forward pass by "
        "itself; PyTorch advises against autocast around it.",
        "step-bypassed": "`optimizer.step()` used gradients that are still scaled, and it steps even when "
        "they overflowed. The scaler has its own way to make the step.",
        "not-scaled": "The loss was not scaled before the backward pass, but its gradients were "
        "unscaled for the step.",
        "no-update": "The scaler was never told that the step is over: its scale can neither fall nor grow.",
        "piles-up": "The gradient of the step before is still in this one: it must go before `backward()`.",
        "weights": "The weights are not those of a right step.",
        **REFUSED,
        "waits": "Reading a tensor (`.item()`, `float()`, `if`), moving it to the CPU, `get_scale()` and "
        "`synchronize()` wait for the device. Return the loss as it is, a tensor where it was made.",
        "keeps-graph": "The loss still holds its graph. Whoever collects losses in a list keeps every "
        "activation of every step.",
        "scaled-loss": "That is not the loss: it looks multiplied by the scale. Keep the loss itself.",
    },
)
