"""Loop e."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course_utils.exercises import Judge

from . import detective
from .checking import faulty_run, judge_result, judge_waits, limit, mend, times, without_sim


def mend_e(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


def _check_e(answer: Callable[..., Any], judge: Judge) -> None:
    if without_sim("e", answer, judge):
        return
    small = detective.run("e", answer, values=True, facts=False)
    judge_result("e", small, judge)
    got = detective.run("e", answer, facts=False)
    if got.seconds > limit("e"):
        same = got.seconds > 0.85 * faulty_run("e").seconds
        judge.no("as-slow" if same else "only-some", **times("e", got))
    kernels = (span.name for span in small.timeline.spans if span.kind == "kernel")
    scaled = sum("non_finite_check" in name for name in kernels)
    judge_waits(small, judge, own=scaled)  # a GradScaler asks once a step


EXERCISE = mend(
    "e",
    reference=mend_e,
    check_answer=_check_e,
    title="Loop e",
    level=2,
    minutes=8,
    task="""
Write `mend_e(model, batches, optimizer)`, the fifth loop without its fault. The batches are on the device, a simulated
A100 this time. It returns the list of losses. They and the change of the weights may be off by 5 in 100, and the
weights stay float32.
""",
    hints=(
        "The device is always busy, near its limit of FLOP/s. At which rate do its tensor cores multiply?",
        "Matrix products need not run in float32. Autocast, or TF32, changes them and nothing else.",
        "Compute model and loss within `torch.autocast(x.device.type, torch.bfloat16)`; backward and step stay "
        "outside.",
    ),
    why="Where arithmetic is the limit, a cheaper number format moves the limit itself. The weights stay in float32, "
    "because a small step would be lost in 16 bits. (With float16 in bfloat16's place add a `GradScaler`, as in "
    "lesson 04. The gradients of this loop are large enough to pass without one; yours may not be.)",
    diagnoses={
        "as-slow": "The time is the given loop's. The large matrix products still run in float32.",
        "only-some": "Some of the matrix products are faster, and the others still run in float32.",
    },
)
