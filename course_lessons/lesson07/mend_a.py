"""Loop a."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import edited
from course_utils.exercises import Judge

from . import detective
from .checking import judge_waits, limit, mend, times


def mend_a(model, batches, optimizer):
    norms = []
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.stack([p.grad.norm() for p in model.parameters()]).norm())
        optimizer.step()
    return torch.stack(norms).tolist()


def _judge_small(small: detective.Run, judge: Judge) -> None:
    judge_waits(small, judge, few=2 * len(small.steps) - 1, diagnosis="each-parameter")
    judge_waits(small, judge, few=1, diagnosis="each-step")


def _judge_a(got: detective.Run, judge: Judge) -> None:
    if got.seconds > limit("a"):
        judge.no(**times("a", got))


A_TWINS = {
    "sum-of-norms": edited(
        mend_a, {"for p in model.parameters()]).norm()": "for p in model.parameters()]).sum()"}
    )
}


EXERCISE = mend(
    "a",
    reference=mend_a,
    twins=A_TWINS,
    judge_small=_judge_small,
    judge_work=_judge_a,
    title="Loop a",
    level=2,
    minutes=10,
    task="""
Write `mend_a(model, batches, optimizer)`, the first loop without its fault. The batches are on the device. It returns
a list of Python numbers: for each step, the norm of the gradient of all parameters together.
""",
    hints=(
        "In the timeline, when does the host wait? Which expression makes a Python number of a tensor?",
        "The norm of the parameters' norms is the norm of the whole gradient, and a tensor can hold it. "
        "`nn.utils.get_total_norm`, from lesson 04, computes it for you.",
        "Keep one tensor a step in the list, and make Python numbers of all of them after the loop: "
        "`torch.stack(norms).tolist()`.",
    ),
    why="Each `.item()` lets the host wait until the queue is empty, and then the device waits for the host. Kept on "
    "the device, the same numbers cost one wait for the whole loop. (`nn.utils.get_total_norm` is the short way to "
    "write the norm.)",
    diagnoses={
        "each-parameter": "The host still waits several times in every step. There its numbers leave the device one by one.",
        "each-step": "One wait a step is left. That gains most of the time here, and still empties the queue in "
        "every step: read the numbers when all steps are made.",
        "sum-of-norms": "The norms of the parts do not add up to the norm of the whole. Their squares do.",
        "too-early": "A copy with `non_blocking=True` was read before it had arrived. Wait for the device before you read it.",
    },
)
