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
    "full-weight": {_SHARE: _PART.format("size / len(x)")},
    "by-size": {_SHARE: _PART.format("len(rows) / size")},
    "drops-tail": (_FULL, {**_FULL, _SHARE: _PART.format("1 / (len(x) // size)")}),
    "other-parts": {_PARTS: _PARTS.replace("split", "chunk")},
    "last-part": {"loss.backward()": "twin.zero_grad()\nloss.backward()"},
    "piles-up": {"parts = gradient(": "parts = whole + gradient("},
}
_RETURN = "return ((parts - whole).norm() / whole.norm()).item()"


def _gap(parts: Tensor, whole: Tensor) -> Tensor:
    return (parts - whole).norm() / whole.norm()


def _gaps(parts: Tensor, whole: Tensor) -> Tensor:
    """Return the gap of each parameter."""
    sizes = [48, *[8] * (len(whole) // 8 - 9), 24, 3]
    return torch.stack(list(map(_gap, parts.split(sizes), whole.split(sizes))))


_MEASURES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], ...]] = {
    "with-itself": (lambda parts, whole: 0 * whole.norm(),),
    "absolute": (lambda parts, whole: (parts - whole).norm(),),
    "other-divisor": (lambda parts, whole: _gap(whole, parts),),
    "difference-of-norms": (lambda parts, whole: _gap(parts.norm(), whole.norm()),),
    "squared": (lambda parts, whole: _gap(parts, whole) ** 2,),
    "sum-of-entries": (lambda parts, whole: (parts - whole).norm(1) / whole.norm(1),),
    "largest-entry": (lambda parts, whole: (parts - whole).abs().max() / whole.abs().max(),),
    "percent": (lambda parts, whole: 100 * _gap(parts, whole),),
    "by-parameter": (
        lambda parts, whole: _gaps(parts, whole).mean(),
        lambda parts, whole: _gaps(parts, whole).max(),
        lambda parts, whole: _gaps(parts, whole)[-1],
    ),
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
            judge.no("other-mode", seen=ran, expected=f"{_mode(training)}, as the model is")
        if isinstance(got, Tensor):
            judge.no("tensor", seen=got, expected="a Python number")
        return judge.number(got)

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
        "other-parts": "`chunk(size)` cuts into `size` parts. They should have `size` rows.",
        "by-size": "The weight of a part is its number of rows over that of all rows, not over `size`.",
        "last-part": "Only the last part's gradient was compared: those before it were set to zero.",
        "percent": "That is the gap in percent.",
        "no-gap-here": "Here the two gradients are equal but for rounding, and your gap is larger.",
        "other-measure": "Where the gradients are equal, your gap is right. Where they differ, it is not the norm of the difference "
        "over that of the whole batch's gradient.",
    },
)
