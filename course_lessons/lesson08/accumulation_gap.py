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
from course_utils.exercises.forms import OverCases


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


def _net(norm: Callable[[int], nn.Module] | None) -> nn.Sequential:
    torch.manual_seed(0)
    middle = [norm(8)] if norm else []
    net = nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Linear(8, 3)).double()
    for p in net.parameters():  # left over from an earlier step
        p.grad = torch.full_like(p, 0.5)
    return net


def _cases() -> Iterator[tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(1)
    for norm, rows, size in (
        (None, 16, 4),
        (None, 13, 4),  # a ragged tail
        (nn.LayerNorm, 11, 4),
        (nn.BatchNorm1d, 12, 4),
        (nn.BatchNorm1d, 14, 6),
        (None, 5, 8),  # one part
    ):
        x = 3 * torch.randn(rows, 6, generator=generator, dtype=torch.float64)
        y = torch.randint(0, 3, (rows,), generator=generator)
        yield _net(norm), F.cross_entropy, x, y, size


_PARTS = "zip(x.split(size), y.split(size), strict=True)"
GAP_TWINS = {
    "by-parts": edited(
        accumulation_gap,
        {"len(rows) / len(x)": "(len(rows) == len(x) or 1 / len(x.split(size)))"},
    ),
    "sum-of-means": edited(accumulation_gap, {" * len(rows) / len(x)": ""}),
    "full-weight": edited(
        accumulation_gap, {"len(rows) / len(x)": "(len(rows) == len(x) or size / len(x))"}
    ),
    "drops-tail": edited(
        accumulation_gap,
        {_PARTS: f"[p for p in {_PARTS} if len(p[0]) in (size, len(x))]"},
    ),
    "eval-mode": edited(accumulation_gap, {"copy.deepcopy(model)": "copy.deepcopy(model).eval()"}),
    "absolute": edited(accumulation_gap, {" / whole.norm()": ""}),
    "largest-entry": edited(
        accumulation_gap,
        {
            "(parts - whole).norm()": "(parts - whole).abs().max()",
            "whole.norm()": "whole.abs().max()",
        },
    ),
}


def _situation(model: nn.Sequential, loss_fn: Any, x: Tensor, y: Tensor, size: int) -> str:
    layers = ", ".join(type(layer).__name__ for layer in model)
    return f"{len(x)} rows in parts of {size}, layers {layers}"


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
        got = judge.number(answer(model, *rest))
        _judge_traces(model, before, judge)
        return got

    _GAPS(traced, judge)


def _judge_traces(model: nn.Module, before: list[Tensor], judge: Judge) -> None:
    after = [*model.parameters(), *model.buffers()]
    if not all(torch.equal(a, b) for a, b in zip(after, before, strict=True)):
        judge.no("changes-the-model", seen="other weights or running statistics after the call")
    if any(p.grad is None or not bool((p.grad == 0.5).all()) for p in model.parameters()):
        judge.no("changes-the-model", seen="other gradients in the model after the call")
    if not model.training:
        judge.no("changes-the-model", seen="the model in eval mode after the call")


EXERCISE = Exercise(
    id="08.accumulation_gap",
    title="Prove that it is equal",
    level=2,
    minutes=12,
    task="""
Write `accumulation_gap(model, loss_fn, x, y, size)`: how far the gradient that is accumulated over parts of
`size` rows (the last may be smaller) is from the gradient of the whole batch `x, y`. Write all gradients as one
long vector: the answer is the norm of the difference over the norm of the whole batch's gradient, a Python number.
`loss_fn` is a mean over its rows. The model stays as it is: its mode, its gradients, and the running statistics
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
        "eval-mode": "In eval mode BatchNorm uses its running statistics, and the very effect you look for is gone.",
        "absolute": "That is the norm of the difference itself. Divide it by the norm of the whole gradient.",
        "largest-entry": "That compares single entries. Use the norm of the whole vector.",
        "changes-the-model": "The call left traces in the model. Work on a copy of it.",
        "wrong-gap": "The gap is another.",
    },
)
