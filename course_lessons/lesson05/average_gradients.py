"""Average the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from course_lessons.shared.checking import on_ranks, values_of
from course_utils.exercises import Exercise, Judge


def average_gradients(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class _Branches(nn.Module):
    """Four layers; rank 1 did not use the second, and the third is frozen."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(3, 2)
        self.second = nn.Linear(2, 2, bias=False)
        self.third = nn.Linear(2, 2).requires_grad_(False)
        self.last = nn.Linear(2, 1).double()


def _with_gradients(rank: int, unused: bool) -> _Branches:
    """Return the model with the gradients of a rank, as if after a backward pass."""
    model = _Branches()
    for number, parameter in enumerate(model.parameters()):
        if parameter.requires_grad:
            values = torch.arange(1.0, parameter.numel() + 1) + 10 * number
            own = (rank + 1) ** 2 * values.roll(rank)  # no rank's is a multiple of another's
            parameter.grad = own.view_as(parameter).to(parameter.dtype)
    if unused and rank == 1:
        model.second.weight.grad = None
    return model


def _check_average_gradients(answer: Callable[..., Any], judge: Judge) -> None:
    for ranks, unused in ((2, False), (3, False), (3, True), (2, True), (1, False)):

        def program(dist: Any, call: Callable[..., Any], unused: bool = unused) -> _Branches:
            model = _with_gradients(dist.get_rank(), unused)
            call(model, dist)
            return model

        hang = "none-skipped" if unused else "one-rank"
        models = on_ranks(program, answer, ranks, judge, hang).results
        before = [_with_gradients(rank, unused) for rank in range(ranks)]
        for rank, model in enumerate(models):
            _judge_averages(model, before, rank, judge)


def _judge_averages(model: _Branches, before: Sequence[_Branches], rank: int, judge: Judge) -> None:
    """Compare the gradients on a rank with the mean over all ranks."""
    ranks = len(before)
    start = dict(before[0].named_parameters())
    for name, parameter in model.named_parameters():
        if not torch.equal(parameter, start[name]):
            judge.no("parameters", seen=f"{name} has changed", expected="only its gradient changed")
        where = f"the gradient of {name} on rank {rank} of {ranks}"
        if not parameter.requires_grad:
            if parameter.grad is not None:
                judge.no("frozen", seen=where, expected=f"none: {name} is frozen")
            continue
        each = [dict(other.named_parameters())[name] for other in before]
        given = [torch.zeros_like(p) if p.grad is None else p.grad for p in each]
        total = torch.stack(given).sum(0)
        users = sum(p.grad is not None for p in each)
        if parameter.grad is None:
            judge.no("not-kept", seen=f"{where} is None", expected=values_of(total / ranks))
        if not torch.allclose(parameter.grad, total / ranks, rtol=1e-5):
            known = {
                "not-divided": total,
                "own": given[rank],
                "own-divided": given[rank] / ranks,
                "users-only": total / users,
                "other-count": (parameter.grad / total).mean() * total,
            }
            like = [key for key, value in known.items() if torch.allclose(parameter.grad, value)]
            why = like[0] if like else "wrong-value"
            judge.no(
                "one-rank" if why == "own" and rank else why,
                seen=f"{where}: {values_of(parameter.grad)}",
                expected=values_of(total / ranks),
            )


EXERCISE = Exercise(
    id="05.average_gradients",
    title="Average the gradients",
    level=2,
    minutes=10,
    task="""
Each rank has called `backward()` on rows of its own. Write `average_gradients(model, dist)`: on every rank, each
parameter's `.grad` becomes the mean over all ranks. A frozen parameter (`requires_grad=False`) gets no gradient. For any
other, `None` counts as zero: this rank did not use the parameter, and another one may have.

`dist` is a parameter so that the same function runs on the simulated cluster, as in the check, and with
`torch.distributed` in real processes.
""",
    hints=(
        "`dist.all_reduce(tensor)` adds up over all ranks, in place. What makes a mean of a sum?",
        "Every rank must call `all_reduce` for the same tensors, in the same order. What can a rank hand in that "
        "has no gradient?",
        "Where `p.requires_grad` and `p.grad is None`, put `torch.zeros_like(p)` there. Then call "
        "`all_reduce`, and divide by `dist.get_world_size()`.",
    ),
    reference=average_gradients,
    check_answer=_check_average_gradients,
    may_change=True,
    why="This is data parallel training: equal weights, the mean gradient on every rank, so equal weights again. "
    "`DistributedDataParallel` does the same with fewer and larger messages, while backward still runs. (Where a backend has "
    "`ReduceOp.AVG`, it adds and divides in one call. gloo in older versions of PyTorch does not have it.)",
    diagnoses={
        "one-rank": "Not every rank takes part, or not every rank keeps the result. A collective is called by all "
        "ranks, and `all_reduce` gives all of them the sum.",
        "none-skipped": "A rank whose gradient is None leaves a call out. Then its next call meets another call of "
        "the other ranks, and they add up what does not belong together, or wait for ever.",
        "not-kept": "All ranks made the call, and this rank's gradient is still None. The mean belongs into its `.grad`.",
        "not-divided": "That is the sum over the ranks.",
        "other-count": "That has the sum's direction and another length. Is it divided by the number of ranks, which `dist` "
        "knows?",
        "own": "On this rank the gradient is as it was. Where did the sum go: into a copy of it?",
        "own-divided": "That is this rank's own gradient, divided by the number of ranks. The others' are not in it.",
        "users-only": "That is the mean over the ranks that used the parameter. `None` counts as zero, and its rank counts too.",
        "parameters": "The parameters themselves have changed. They are equal on all ranks already; the gradients are not.",
        "frozen": "A frozen parameter has a gradient now. An optimiser with weight decay would change it.",
    },
)
