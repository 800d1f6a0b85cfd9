"""Loop a."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Judge

from . import detective
from .checking import judge_waits, limit, mend, times, usual_twins


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
        judge.no("slow", **times("a", got))


_NORM = "torch.stack([p.grad.norm() for p in model.parameters()]).norm()"
_EACH = _NORM.removesuffix(".norm()")


def _with(norm: str):
    return edited(mend_a, {_NORM: norm})


_MISTAKES = {
    "squared": _with(f"{_NORM} ** 2"),
    "sum-of-norms": _with(f"{_EACH}.sum()"),
    "mean-of-norms": _with(f"{_EACH}.mean()"),
    "largest-norm": _with(f"{_EACH}.max()"),
    "root-of-sum": _with(f"{_EACH}.sum().sqrt()"),
    "one-parameter": (_with(f"{_EACH}[-1]"), _with(f"{_EACH}[0]"), _with(f"{_EACH}[-2]")),
    "no-biases": _with(_NORM.replace("()])", "() if p.dim() > 1])")),
    "weights-norm": (
        _with(_NORM.replace("p.grad", "p.detach()")),
        {
            f"norms.append({_NORM})": "",
            "optimizer.step()": "optimizer.step()\nnorms.append("
            + _NORM.replace("p.grad", "p.detach()")
            + ")",
        },
    ),
    "largest-number": _with("max(p.grad.abs().max() for p in model.parameters())"),
    "absolute-sum": _with("sum(p.grad.abs().sum() for p in model.parameters())"),
    "losses": _with("loss.detach()"),
    "running-norm": {"(norms).tolist()": "(norms).square().cumsum(0).sqrt().tolist()"},
    "clipped": tuple(
        _with(f"torch.nn.utils.clip_grad_norm_(model.parameters(), {most})")
        for most in (1.0, 0.5, 2.0, 5.0, 10.0)
    ),
    **usual_twins(mend_a, "torch.stack(norms)"),
}
A_TWINS = twins_of(mend_a, _MISTAKES)


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
        "squared": "That is the square of the norm: the root is missing.",
        "sum-of-norms": "The norms of the parts do not add up to the norm of the whole. Their squares do.",
        "mean-of-norms": "That is the mean of the parameters' norms. The whole is longer than any of its parts.",
        "largest-norm": "That is the largest of the parameters' norms. The whole is longer than any of its parts.",
        "root-of-sum": "That is the root of the sum of the norms. They must be squared before they are added.",
        "one-parameter": "That is the gradient of a single parameter. The whole has all of them.",
        "no-biases": "The biases' gradients are left out. The whole has all of them.",
        "weights-norm": "That is the norm of the weights. The task asks for the gradient's.",
        "largest-number": "That is the largest number in the gradients. The norm is the root of the sum of squares.",
        "absolute-sum": "That adds up the numbers without their signs. The norm is the root of the sum of squares.",
        "losses": "Those are the losses. The task asks for the norms of the gradients.",
        "running-norm": "The squares of earlier steps are still in the later numbers: begin anew in each step.",
        "clipped": "The gradients were clipped on the way: from the second step on another model is "
        "trained.",
    },
)
