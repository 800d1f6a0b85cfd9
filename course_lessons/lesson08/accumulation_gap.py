"""Prove that it is equal."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import one_thread
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases, several

from .checking import plain


def accumulation_gap(model, loss_fn, x, y, size):
    def gradient(parts):
        twin = copy.deepcopy(model)
        for rows, labels in parts:
            loss = loss_fn(twin(rows), labels) * len(rows) / len(x)
            loss.backward()
        return torch.cat([p.grad.flatten() for p in twin.parameters()])

    whole = gradient([(x, y)])
    parts = gradient(zip(x.split(size), y.split(size), strict=True))
    return ((parts - whole).norm() / whole.norm()).item()


def _net(norm: Callable[[int], nn.Module] | None, training: bool) -> nn.Sequential:
    torch.manual_seed(0)
    middle = [norm(8)] if norm else []
    net = nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Linear(8, 3)).double()
    net.train(training)
    for p in net.parameters():  # left over from an earlier step
        p.grad = torch.full_like(p, 0.5)
    return net


def _cases() -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(1)
    for norm, rows, size, training in (
        (None, 16, 4, True),
        (None, 13, 4, True),  # a ragged tail
        (nn.LayerNorm, 11, 4, True),
        (nn.BatchNorm1d, 12, 4, True),
        (nn.BatchNorm1d, 14, 6, True),
        (nn.BatchNorm1d, 11, 3, False),
        (nn.BatchNorm1d, 9, 3, True),
        (None, 5, 8, True),  # one part
    ):
        x = 3 * torch.randn(rows, 6, generator=generator, dtype=torch.float64)
        y = torch.randint(0, 3, (rows,), generator=generator)
        yield _net(norm, training), F.cross_entropy, x, y, size


_PARTS = "zip(x.split(size), y.split(size), strict=True)"
_SHARE = "len(rows) / len(x)"
_ANSWER = "((parts - whole).norm() / whole.norm())"
_TWINS: dict[str, dict[str, str] | tuple[dict[str, str], ...]] = {
    "by-parts": {_SHARE: "(len(rows) == len(x) or 1 / len(x.split(size)))"},
    "sum-of-means": {f" * {_SHARE}": ""},
    "full-weight": {_SHARE: "(len(rows) == len(x) or size / len(x))"},
    "drops-tail": {_PARTS: f"[p for p in {_PARTS} if len(p[0]) in (size, len(x))]"},
    "piles-up": {"parts = gradient(": "parts = whole + gradient("},
    "with-itself": {"parts - whole": "whole - whole"},
    "absolute": {" / whole.norm()": ""},
    "other-divisor": {"/ whole.norm()": "/ parts.norm()"},
    "difference-of-norms": {"(parts - whole).norm()": "(parts.norm() - whole.norm()).abs()"},
    "squared": {_ANSWER: "((parts - whole).square().sum() / whole.square().sum())"},
    "sum-of-entries": {_ANSWER: "((parts - whole).abs().sum() / whole.abs().sum())"},
    "largest-entry": {_ANSWER: "((parts - whole).abs().max() / whole.abs().max())"},
    "by-parameter": tuple(
        {
            "torch.cat([p.grad.flatten() for p in twin.parameters()])": "[p.grad for p in twin.parameters()]",
            _ANSWER: f"torch.stack([(a - b).norm() / b.norm() for a, b in zip(parts, whole)]).{of}()",
        }
        for of in ("mean", "max")
    ),
}
GAP_TWINS = {
    name: tuple(edited(accumulation_gap, edits) for edits in several(twin))
    for name, twin in _TWINS.items()
}


def _situation(model: nn.Sequential, loss_fn: Any, x: Tensor, y: Tensor, size: int) -> str:
    layers = ", ".join(type(layer).__name__ for layer in model)
    return f"{len(x)} rows in parts of {size}, layers {layers}, {_mode(model.training)}"


def _mode(training: bool) -> str:
    return "train mode" if training else "eval mode"


_GAPS = OverCases(
    accumulation_gap,
    _cases,
    GAP_TWINS,
    alike=lambda got, right: math.isclose(got, right, rel_tol=1e-3, abs_tol=1e-9),
    otherwise="wrong-gap",
    situation=_situation,
    shown=lambda gap: f"{gap:.3g}",
)


@one_thread()
def _check_accumulation_gap(answer: Callable[..., Any], judge: Judge) -> None:
    def traced(model: nn.Module, *rest: Any) -> float:
        before = [t.clone() for t in (*model.parameters(), *model.buffers())]
        training, modes = model.training, set()
        for module in model.modules():  # its copies have the hook too
            module.register_forward_pre_hook(lambda module, args: modes.add(module.training))
        got = answer(model, *rest)
        _judge_traces(model, training, before, judge)
        if modes - {training}:
            ran = f"a forward pass in {_mode(not training)}"
            judge.no("other-mode", seen=ran, expected=f"{_mode(training)}, as the model is")
        if isinstance(got, Tensor):
            judge.no("tensor", seen=got, expected="a Python number")
        return judge.number(plain(got))

    _GAPS(traced, judge)


def _judge_traces(model: nn.Module, training: bool, before: list[Tensor], judge: Judge) -> None:
    after = [*model.parameters(), *model.buffers()]
    if not all(torch.equal(a, b) for a, b in zip(after, before, strict=True)):
        judge.no("changes-the-model", seen="other weights, or running statistics, after the call")
    if any(p.grad is None or not bool((p.grad == 0.5).all()) for p in model.parameters()):
        judge.no("changes-the-model", seen="other gradients in the model after the call")
    if any(module.training != training for module in model.modules()):
        judge.no("changes-the-model", seen=f"{_mode(not training)} after the call")


EXERCISE = Exercise(
    id="08.accumulation_gap",
    title="Prove that it is equal",
    level=2,
    minutes=12,
    task="""
Write `accumulation_gap(model, loss_fn, x, y, size)`: how far the gradient that is accumulated over parts of
`size` rows (the last may be smaller) is from the gradient of the whole batch `x, y`. Write all gradients as one
long vector: the answer is the norm of the difference over the norm of the whole batch's gradient, a Python number.
`loss_fn` is a mean over its rows. Both gradients are those of the mode that the model is in, and the model stays as it is: its mode, its gradients, and the running statistics
of a BatchNorm.
""",
    hints=(
        "A model in train mode changes when it only looks at data. How do you look without leaving traces?",
        "Take a `copy.deepcopy(model)` for each of the two gradients. A copy brings no gradients along.",
        "The loss of each part counts `len(rows) / len(x)`. Then `torch.cat` of all `p.grad.flatten()`, twice.",
    ),
    reference=accumulation_gap,
    check_answer=_check_accumulation_gap,
    why="Now it is a number, not a belief: rounding where it is equal, and a visible share where it is not. Run this test "
    "on your own model before you rely on accumulation.",
    diagnoses={
        "by-parts": "Each part got the same weight. A smaller last part must count for less.",
        "sum-of-means": "The parts' means were added up and not weighted by their share of the rows.",
        "full-weight": "The last, smaller part counts as much as a full one. Its weight is its own number of rows over all.",
        "drops-tail": "The last, smaller part was left out.",
        "piles-up": "The gradient of the whole batch is still in the sum of the parts.",
        "with-itself": "Your gap is always 0: a gradient was compared with itself.",
        "other-mode": "The model must run in the mode that it is in: BatchNorm and dropout do other things in the other one.",
        "absolute": "That is the norm of the difference itself. Divide it by the norm of the whole gradient.",
        "other-divisor": "You divided by the norm of the accumulated gradient. Divide by that of the whole batch's.",
        "difference-of-norms": "That is the difference of the norms. The norm of the difference is asked for.",
        "squared": "That is the square: a root is missing.",
        "sum-of-entries": "That adds up the sizes of the entries. The norm is the root of the sum of their squares.",
        "largest-entry": "That compares single entries. Use the norm of the whole vector.",
        "by-parameter": "Each parameter has a gap of its own here. Write all gradients as one vector first.",
        "tensor": "A tensor came back. `.item()` makes a Python number of it.",
        "changes-the-model": "The call left traces in the model. Work on a copy of it.",
        "wrong-gap": "This is not the norm of the difference over the norm of the whole batch's gradient.",
    },
)
