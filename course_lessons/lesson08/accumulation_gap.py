"""Prove that it is equal."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge


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
    return nn.Sequential(nn.Linear(6, 8), *middle, nn.ReLU(), nn.Linear(8, 3)).double()


def _check_accumulation_gap(answer: Callable[..., Any], judge: Judge) -> None:
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
        model = _net(norm)
        for p in model.parameters():  # left over from an earlier step
            p.grad = torch.full_like(p, 0.5)
        before = [t.clone() for t in (*model.parameters(), *model.buffers())]
        got = judge.number(answer(model, F.cross_entropy, x, y, size))
        case = f"{rows} rows in parts of {size}, {norm.__name__ if norm else 'no normalisation'}"
        _judge_traces(model, before, judge)
        right = accumulation_gap(model, F.cross_entropy, x, y, size)
        if math.isclose(got, right, rel_tol=1e-3, abs_tol=1e-9):
            continue
        twins = {name: f(model, F.cross_entropy, x, y, size) for name, f in GAP_TWINS.items()}
        like = [n for n, v in twins.items() if math.isclose(got, v, rel_tol=1e-3, abs_tol=1e-9)]
        judge.no(
            like[0] if like else "wrong-gap", seen=f"{got:.3g} for {case}", expected=f"{right:.3g}"
        )


def _judge_traces(model: nn.Module, before: list[Tensor], judge: Judge) -> None:
    after = [*model.parameters(), *model.buffers()]
    if not all(torch.equal(a, b) for a, b in zip(after, before, strict=True)):
        judge.no("changes-the-model", seen="other weights or running statistics after the call")
    if any(p.grad is None or not bool((p.grad == 0.5).all()) for p in model.parameters()):
        judge.no("changes-the-model", seen="other gradients in the model after the call")
    if not model.training:
        judge.no("changes-the-model", seen="the model in eval mode after the call")


def _gap_with(
    weigh: Callable[[int, int, int, int], float] = lambda n, size, total, parts: n / total,
    prepare: Callable[[nn.Module], nn.Module] = lambda model: model,
    drop_last: bool = False,
    relative: bool = True,
    largest: bool = False,
) -> Callable[..., Any]:
    """The gap with one thing done otherwise."""

    def accumulation_gap(model, loss_fn, x, y, size):
        def gradient(parts):
            twin = prepare(copy.deepcopy(model))
            for rows, labels in parts:
                share = weigh(len(rows), size, len(x), len(parts)) if len(parts) > 1 else 1.0
                (loss_fn(twin(rows), labels) * share).backward()
            return torch.cat([p.grad.flatten() for p in twin.parameters()])

        parts = list(zip(x.split(size), y.split(size), strict=True))
        if drop_last and len(parts) > 1 and len(parts[-1][0]) < size:
            parts = parts[:-1]
        whole, summed = gradient([(x, y)]), gradient(parts)
        gap = (summed - whole).abs().max() if largest else (summed - whole).norm()
        scale = whole.abs().max() if largest else whole.norm()
        return (gap / scale if relative else gap).item()

    return accumulation_gap


GAP_TWINS: dict[str, Callable[..., Any]] = {
    "by-parts": _gap_with(weigh=lambda n, size, total, parts: 1 / parts),
    "sum-of-means": _gap_with(weigh=lambda n, size, total, parts: 1.0),
    "full-weight": _gap_with(weigh=lambda n, size, total, parts: size / total),
    "drops-tail": _gap_with(drop_last=True),
    "eval-mode": _gap_with(prepare=lambda model: model.eval()),
    "absolute": _gap_with(relative=False),
    "largest-entry": _gap_with(largest=True),
}


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
