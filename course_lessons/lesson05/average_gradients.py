"""Average the gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from course_lessons.shared.checking import on_ranks
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import agree, apart, nearly
from simgpu import cluster


def average_gradients(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class _Branches(nn.Module):
    """Four layers, the third frozen. The weights are another on each rank: nobody is to touch them."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        torch.manual_seed(rank)
        self.first = nn.Linear(3, 2)
        self.second = nn.Linear(2, 2, bias=False)
        self.third = nn.Linear(2, 2).requires_grad_(False)
        self.last = nn.Linear(2, 1)


def _with_gradients(rank: int, unused: Sequence[str]) -> _Branches:
    """Return the model with the gradients of a rank, as if after a backward pass."""
    model = _Branches(rank)
    for number, (name, parameter) in enumerate(model.named_parameters()):
        if parameter.requires_grad and name not in unused:
            values = torch.arange(1.0, parameter.numel() + 1) + 10 * number
            values[::2] *= -1
            own = (rank + 1) ** 2 * values.roll(rank)  # no rank's is a multiple of another's
            parameter.grad = own.view_as(parameter)
    return model


_A, _B = "second.weight", "last.bias"
_UNUSED: tuple[tuple[tuple[str, ...], ...], ...] = (
    ((), ()),
    ((), (), ()),
    ((),),
    ((), (_A,), ()),
    ((_A,), ()),
    ((_B,), (_A, _B)),
    ((_A,), (_A,), (_A, _B)),
)
"""For each case and rank, the parameters that the rank did not use."""


def _program(unused: Sequence[Sequence[str]]) -> Callable[..., _Branches]:
    """Return what each rank runs: it gives the model, whose gradients were to be averaged."""

    def program(dist: Any, call: Callable[..., Any]) -> _Branches:
        model = _with_gradients(dist.get_rank(), unused[dist.get_rank()])
        call(model, dist)
        return model

    return program


def _check_average_gradients(answer: Callable[..., Any], judge: Judge) -> None:
    got = []
    for unused in _UNUSED:
        hang = "none-skipped" if any(unused) else "not-all-call"
        models = on_ranks(_program(unused), answer, len(unused), judge, hang).results
        for rank, model in enumerate(models):
            _judge_untouched(model, _with_gradients(rank, unused[rank]), judge)
        got.append(_gradients(models))
    right = _outcomes(average_gradients)
    if agree(_ALIKE, got, right):
        return

    def say(at: int) -> tuple[str, str]:
        name, rank = next(iter(_wrong(got[at], right[at])))
        seen, expected = apart(got[at][name][rank], right[at][name][rank], _ALIKE)
        return f"{name}.grad on rank {rank} of {len(_UNUSED[at])}, {seen or None}", expected

    judge.closest(
        got,
        right,
        {name: [_outcomes(one) for one in several(twin)] for name, twin in TWINS.items()},
        alike=_ALIKE,
        otherwise=lambda _: _other(got, right),
        say=say,
    )


def _judge_untouched(model: _Branches, start: _Branches, judge: Judge) -> None:
    """Refuse what was done to the weights, and to what is frozen."""
    for (name, parameter), before in zip(model.named_parameters(), start.parameters(), strict=True):
        if parameter.requires_grad != before.requires_grad:
            seen = f"requires_grad of {name} is {parameter.requires_grad}"
            judge.no("parameters", seen=seen, expected="only its gradient changed")
        if not torch.equal(parameter, before):
            judge.no("parameters", seen=f"{name} has changed", expected="only its gradient changed")
        if not parameter.requires_grad and parameter.grad is not None:
            judge.no("frozen", seen=f"a gradient in {name}", expected=f"none: {name} is frozen")


_Case = dict[str, list[Any]]
_ALIKE = nearly()


def _gradients(models: Sequence[_Branches]) -> _Case:
    """Return, for each parameter that is trained, its gradient on each rank."""
    return {
        name: [dict(model.named_parameters())[name].grad for model in models]
        for name, parameter in models[0].named_parameters()
        if parameter.requires_grad
    }


@functools.cache
def _outcomes(function: Callable[..., Any]) -> list[_Case]:
    """Return the gradients that a function leaves, for each case."""
    runs = (cluster.run(_program(names), len(names), arguments=(function,)) for names in _UNUSED)
    return [_gradients(run.results) for run in runs]


_FILL = "if parameter.grad is None:\n    parameter.grad = torch.zeros_like(parameter)"
_SEND, _DIVIDE = "dist.all_reduce(parameter.grad)", "parameter.grad /= dist.get_world_size()"
_DIVIDE_ON_0 = f"if dist.get_rank() == 0:\n    {_DIVIDE}"
_BROADCAST, _REDUCE = "dist.broadcast(parameter.grad, 0)", "dist.reduce(parameter.grad, 0)"
_USERS = "users = torch.tensor(float(parameter.grad is not None))"
_MISTAKES = {
    "not-divided": {_DIVIDE: ""},
    "own": ({_SEND: "", _DIVIDE: ""}, lambda model, dist: None),
    "own-divided": {_SEND: "dist.all_reduce(parameter.grad.clone())"},
    "of-rank-0": ({_SEND: _BROADCAST, _DIVIDE: ""}, {_SEND: _BROADCAST}),
    "rank-0-alone": (
        {_DIVIDE: _DIVIDE_ON_0},
        {_SEND: _REDUCE, _DIVIDE: _DIVIDE_ON_0},
        {_SEND: _REDUCE},
    ),
    "zeros": {"if parameter.grad is None:": "if True:"},
    "users-only": {
        _FILL: f"{_USERS}\n{_FILL}",
        _SEND: f"{_SEND}\ndist.all_reduce(users)",
        "dist.get_world_size()": "users.clamp(min=1)",
    },
    "not-kept": {
        _FILL: "grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad",
        _SEND: "dist.all_reduce(grad)",
        _DIVIDE: "grad /= dist.get_world_size()",
    },
    "nobodys": {_FILL: f"{_USERS}\ndist.all_reduce(users)\nif not users:\n    continue\n{_FILL}"},
    "ones": {"torch.zeros_like": "torch.ones_like"},
}
TWINS: dict[str, Any] = twins_of(average_gradients, _MISTAKES)


def _wrong(got: _Case, right: _Case) -> Iterator[tuple[str, int]]:
    """Find the gradients that are not right, by their names and ranks."""
    for name, each in right.items():
        for rank, value in enumerate(each):
            if not agree(_ALIKE, got[name][rank], value):
                yield name, rank


def _other(got: Sequence[_Case], right: Sequence[_Case]) -> str:
    """Say what is seen in gradients that follow no twin."""
    wrong = [(at, n, r) for at, case in enumerate(right) for n, r in _wrong(got[at], case)]

    def are_those_of(twin: Callable[..., Any]) -> bool:
        made = _outcomes(twin)
        return all(agree(_ALIKE, got[at][n][r], made[at][n][r]) for at, n, r in wrong)

    if are_those_of(TWINS["own"][1]):
        return "some-left"
    if are_those_of(TWINS["not-divided"]):
        return "some-sums"
    divided = True
    for g, mean in zip(got, right, strict=True):
        for r in range(len(mean[_A])):
            if g["first.weight"][r] is None:
                return "wrong-value"
            factor = (g["first.weight"][r] / mean["first.weight"][r]).mean()
            there = [n for n in mean if g[n][r] is not None]
            divided &= all(agree(_ALIKE, g[n][r], factor * mean[n][r]) for n in there)
    return "other-count" if divided else "wrong-value"


EXERCISE = Exercise(
    id="05.average_gradients",
    title="Average the gradients",
    level=2,
    minutes=10,
    task="""
Each rank has called `backward()` on rows of its own. Write `average_gradients(model, dist)`: on every rank, each
parameter's `.grad` becomes the mean over all ranks. A frozen parameter (`requires_grad=False`) gets no gradient. For any
other, `None` counts as zero: this rank did not use the parameter, and another one may have. (Where none has, the mean is zero.)

`dist` is the simulated cluster in the check, and `torch.distributed` in real processes.
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
        "not-all-call": "Not every rank makes the same calls, though each has all gradients here. A collective is called "
        "by all ranks, in the same order.",
        "none-skipped": "A rank whose gradient is None leaves a call out here, so its calls no longer fit those of the other "
        "ranks.",
        "not-kept": "All ranks made the call, and where the gradient was None, it still is. The mean belongs into `.grad`.",
        "nobodys": "A parameter that no rank used still has no gradient. None counts as zero on each rank, and the mean of "
        "zeros is zero.",
        "not-divided": "That is the sum over the ranks.",
        "other-count": "That is the sum, divided by another number than that of the ranks, which `dist` knows.",
        "own": "Each rank's gradient is as it was. What `all_reduce` adds up must be `.grad` itself, else put the result there.",
        "own-divided": "That is this rank's own gradient, divided by the number of ranks. The others' are not in it.",
        "of-rank-0": "All ranks have what rank 0 had. The others' gradients are not in it.",
        "rank-0-alone": "Rank 0 has the mean, and the others have not. `all_reduce` gives the sum to every rank, and every rank "
        "must divide it.",
        "some-left": "Some gradients are the mean, and others are as they were.",
        "some-sums": "Some gradients are the mean, and others are the sum still: each is to be divided.",
        "zeros": "All gradients are zero: the rank's own was put away. Only None counts as zero.",
        "ones": "A rank without a gradient counts as one here, in each place. It counts as zero.",
        "users-only": "That is the mean over the ranks that used the parameter. `None` counts as zero, and its rank counts too.",
        "parameters": "The parameters themselves have changed. Only their gradients are to.",
        "frozen": "A frozen parameter has a gradient now. An optimiser with weight decay would change it.",
    },
)
