"""Loop f."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_utils.exercises import Judge

from . import detective
from .checking import judge_result, limit, mend, times, twin_of, without_sim


def stepped(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def mend_f(model, batches, optimizer):
    accuracies, hits, seen = [], 0, 0
    for x, y in batches:
        output = model(x)
        loss = F.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += (output.argmax(1) == y).sum()
        seen += len(y)
        accuracies.append(hits / seen)
    return torch.stack(accuracies).tolist()


def _check_f(answer: Callable[..., Any], judge: Judge) -> None:
    if without_sim("f", answer, judge):
        return
    small = detective.run("f", answer, values=True, facts=False)
    twins = {name: functools.partial(twin_of, "f", twin) for name, twin in _F_TWINS.items()}
    judge_result("f", small, judge, twins)
    waits = small.steps[-1].synchronizations if small.steps else 0
    if waits > 2:
        judge.no(
            "waits-each-step",
            seen=f"the host waited {waits} times before the last of {len(small.steps)} steps was made",
            expected="no wait before the steps are made",
        )
    got = detective.run("f", answer, facts=False)
    each = got.step_bytes
    if got.seconds <= limit("f") and len(each) > 2 and each[-1] - each[1] > detective.ROWS_F:
        judge.no(
            "still-grows",
            seen=f"{each[1]:,.0f} bytes read and written in the second step, {each[-1]:,.0f} in the last",
            expected="as many in each step",
        )
    if got.seconds > limit("f"):
        late = got.rest_seconds > 0.25 * got.seconds
        judge.no("moved-to-the-end" if late else "still-grows", **times("f", got))


def f_with(accuracies_of: Callable[[list[Tensor], list[Tensor]], Any]) -> Callable[..., Any]:
    """Train, keep all outputs, and make the accuracies of them at the end."""

    def mend_f(model, batches, optimizer):
        outputs, labels = [], []
        for x, y in batches:
            output = model(x)
            stepped(F.cross_entropy(output, y), optimizer)
            outputs.append(output.detach())
            labels.append(y)
        return accuracies_of(outputs, labels)

    return mend_f


def accuracy(output: Tensor, y: Tensor) -> Tensor:
    return (output.argmax(1) == y).float().mean()


def _means_of_means(outputs: list[Tensor], labels: list[Tensor]) -> list[float]:
    each = torch.stack([accuracy(o, y) for o, y in zip(outputs, labels, strict=True)])
    return (each.cumsum(0) / torch.arange(1, len(each) + 1, device=each.device)).tolist()


f_per_batch = f_with(
    lambda outputs, labels: torch.stack(
        [accuracy(o, y) for o, y in zip(outputs, labels, strict=True)]
    ).tolist()
)


f_mean_of_means = f_with(_means_of_means)


def f_aliased(model, batches, optimizer):
    hits = torch.zeros((), device=batches[0][0].device)
    found, seen = [], []
    for x, y in batches:
        output = model(x)
        stepped(F.cross_entropy(output, y), optimizer)
        hits += (output.argmax(1) == y).sum()
        found.append(hits)
        seen.append(len(y) + sum(seen[-1:]))
    return (torch.stack(found).cpu() / torch.tensor(seen)).tolist()


_F_TWINS = {
    "per-batch": f_per_batch,
    "mean-of-means": f_mean_of_means,
    "aliased": f_aliased,
}


EXERCISE = mend(
    "f",
    reference=mend_f,
    check_answer=_check_f,
    title="Loop f",
    level=3,
    minutes=12,
    task="""
Write `mend_f(model, batches, optimizer)`, the sixth loop without its fault. The batches are on the device, and one of
them is smaller. It returns a list of Python numbers: after each step, the accuracy over all samples seen so far, each with
the output that its own step gave.
""",
    hints=(
        "Compare the last step with the first. What does it do that the first one did not?",
        "What must be known of all earlier samples, so that one more batch can be added?",
        "Two numbers are enough: how many were right, as a tensor on the device, and how many there were.",
    ),
    why="Work over everything so far makes each step a little slower, and a training of n steps does n² of it. In a short "
    "trial it does not show. A running count makes each step cost the same.",
    diagnoses={
        "still-grows": "The last steps still take longer than the first: the earlier samples are gone through again.",
        "moved-to-the-end": "The steps are fast now, and the same work is done after the last one.",
        "waits-each-step": "The host now waits for the device in every step: what you count need not leave it before "
        "the last one.",
        "per-batch": "That is the accuracy of each batch by itself. The task asks for all samples so far.",
        "aliased": "Every entry of the list is the same tensor; `+=` changed it later. Append a new tensor in each step.",
        "mean-of-means": "The mean of the batches' accuracies counts a small batch as much as a large one.",
    },
)
