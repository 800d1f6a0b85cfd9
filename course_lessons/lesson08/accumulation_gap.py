"""Prove that it is equal."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import one_thread
from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases, several


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


@functools.cache
def _new_net(norm: Callable[[int], nn.Module] | None) -> nn.Sequential:
    torch.manual_seed(0)
    middle = [norm(8)] if norm else []
    bias = norm is not nn.BatchNorm1d  # before that its gradient is noise about 0, and has no gap
    return nn.Sequential(nn.Linear(6, 8, bias), *middle, nn.ReLU(), nn.Linear(8, 3)).double()


def _net(norm: Callable[[int], nn.Module] | None, training: bool) -> nn.Sequential:
    net = copy.deepcopy(_new_net(norm)).train(training)
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
_PART = "(len(rows) == len(x) or {})"
_FULL = {_PARTS: f"[p for p in {_PARTS} if len(p[0]) in (size, len(x))]"}
_GRADIENTS = {
    "by-parts": {_SHARE: _PART.format("1 / len(x.split(size))")},
    "sum-of-means": {f" * {_SHARE}": ""},
    "drops-tail": (_FULL, {**_FULL, _SHARE: _PART.format("1 / (len(x) // size)")}),
    "piles-up": {"parts = gradient(": "parts = whole + gradient("},
}
_RETURN = "return ((parts - whole).norm() / whole.norm()).item()"


def _gap(parts: Tensor, whole: Tensor) -> Tensor:
    return (parts - whole).norm() / whole.norm()


_MEASURES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], ...]] = {
    "with-itself": (lambda parts, whole: 0 * whole.norm(),),
    "difference-of-norms": (lambda parts, whole: _gap(parts.norm(), whole.norm()),),
}
_KNOWN: dict[Any, tuple[Tensor, Tensor]] = {}


def _twin(edits: dict[str, str], measure: Callable[..., Tensor] = _gap) -> Callable[..., float]:
    """Return a wrong answer: other gradients, another measure. Its gradients are kept for the next check."""
    gradients = edited(accumulation_gap, {**edits, _RETURN: "return parts, whole"})

    def twin(*case: Any) -> float:
        key = (*edits.items(), _situation(*case))
        if key not in _KNOWN:
            _KNOWN[key] = gradients(*case)
        return measure(*_KNOWN[key]).item()

    return twin


GAP_TWINS = {
    **{name: tuple(map(_twin, several(edits))) for name, edits in _GRADIENTS.items()},
    **{name: tuple(_twin({}, one) for one in some) for name, some in _MEASURES.items()},
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
    otherwise=lambda got, right, *_: "no-gap-here" if right < 1e-9 else "other-measure",
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
            judge.no(seen=ran, expected=f"{_mode(training)}, as the model is")
        if isinstance(got, Tensor):
            judge.no(seen=got, expected="a Python number")
        return judge.number(got)

    _GAPS(traced, judge)


def _judge_traces(model: nn.Module, training: bool, before: list[Tensor], judge: Judge) -> None:
    after = [*model.parameters(), *model.buffers()]
    if not all(torch.equal(a, b) for a, b in zip(after, before, strict=True)):
        judge.no(seen="other weights, or running statistics, after the call")
    if any(p.grad is None or not bool((p.grad == 0.5).all()) for p in model.parameters()):
        judge.no(seen="other gradients in the model after the call")
    if any(module.training != training for module in model.modules()):
        judge.no(seen=f"{_mode(not training)} after the call")


EXERCISE = Exercise(
    id="08.accumulation_gap",
    title="Prove that it is equal",
    level=2,
    minutes=12,
    task="""
Write `accumulation_gap(model, loss_fn, x, y, size)`: how far the gradient accumulated over parts of `size` rows (the
last may be smaller) is from that of the whole batch. Take all gradients as one long vector, and return the norm of the
difference over the norm of the whole batch's gradient, a Python number. `loss_fn` is a mean over its rows. Keep to the
mode that the model is in, and leave its mode, its gradients and a BatchNorm's running statistics as they are.
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
        "drops-tail": "The last, smaller part was left out.",
        "piles-up": "The gradient of the whole batch is still in the sum of the parts.",
        "with-itself": "Your gap is always 0: a gradient was compared with itself.",
        "difference-of-norms": "That is the difference of the norms. The norm of the difference is asked for.",
    },
)
