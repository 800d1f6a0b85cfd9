"""Loop a."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from course_utils.exercises import Judge
from course_utils.exercises.edited import edited

from . import detective
from .checking import judge_result, limit, mend, times, twin_of, without_sim


def mend_a(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).tolist()


def _check_a(answer: Callable[..., Any], judge: Judge) -> None:
    if without_sim("a", answer, judge):
        return
    got = detective.run("a", answer, facts=False)
    early = any(copy.non_blocking for copy in got.counters.copies)
    if early and not got.counters.synchronizations:
        judge.no("too-early", seen="a copy that nobody waited for", expected="a wait at the end")
    twins = {name: functools.partial(twin_of, "a", twin) for name, twin in _A_TWINS.items()}
    judge_result("a", got, judge, twins)
    steps = len(got.steps)
    waits = got.steps[-1].synchronizations if steps else 0
    if waits > 1:
        judge.no(
            "each-parameter" if waits >= 2 * steps else "each-step",
            seen=f"the host waited {waits} times before the last of {steps} steps was made",
            expected="no wait before the steps are made",
        )
    if got.seconds > limit("a"):
        judge.no("slow", **times("a", got))


a_sums = edited(
    mend_a,
    {
        "(torch.stack([p.grad.norm() for p in model.parameters()]).norm())": "(torch.stack([p.grad.norm() for p in model.parameters()]).sum())"
    },
)


a_clipped = edited(
    mend_a,
    {
        "norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())": "norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))"
    },
)


_A_TWINS = {"sum-of-norms": a_sums, "clipped": a_clipped}


EXERCISE = mend(
    "a",
    reference=mend_a,
    check_answer=_check_a,
    title="Loop a",
    level=2,
    minutes=10,
    task="""
Write `mend_a(model, batches, optimizer)`, the first loop without its fault. The batches are on the device. It returns
a list of Python numbers: for each step, the norm of the gradient of all parameters together.
""",
    hints=(
        "In the timeline, when does the host wait? Which expression makes a Python number of a tensor?",
        "The norm of the parameters' norms is the norm of the whole gradient, and a tensor can hold it.",
        "Keep one tensor a step in the list, and make Python numbers of all of them after the loop: "
        "`torch.stack(norms).tolist()`.",
    ),
    why="Each `.item()` lets the host wait until the queue is empty, and then the device waits for the host. Kept on "
    "the device, the same numbers cost one wait for the whole loop.",
    diagnoses={
        "each-parameter": "The host still waits several times in every step. Something makes a Python number, or a "
        "CPU tensor, of each parameter's norm.",
        "each-step": "One wait a step is left. That gains most of the time here, and still empties the queue in "
        "every step: read the numbers when all steps are made.",
        "sum-of-norms": "The norms of the parts do not add up to the norm of the whole. Their squares do.",
        "clipped": "The norms are right, and the gradients were clipped to 1 on the way: from the second step on "
        "another model is trained.",
        "too-early": "A copy with non_blocking=True was read before it had arrived.",
    },
)
