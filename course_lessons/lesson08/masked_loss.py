"""A mask that nobody waits for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.checking import one_thread
from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases
from course_utils.exercises.judge import Raised
from course_utils.exercises.values import nearly

from .checking import without_this_frame


def masked_loss(logits, targets, mask):
    clean = logits.masked_fill(~mask[:, None], 0)
    kept = targets.masked_fill(~mask, -100)
    total = F.cross_entropy(clean, kept, reduction="sum")
    return total / mask.sum().clamp(min=1)


def _masked_case(
    kept: Sequence[int], rows: int = 12, classes: int = 5, lost: Sequence[int] = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, targets and mask; the targets of rows that do not count are no class.

    The logits of the rows in ``lost`` are NaN.
    """
    generator = torch.Generator().manual_seed(10 * rows + len(kept))
    mask = torch.zeros(rows, dtype=torch.bool)
    mask[list(kept)] = True
    targets = torch.randint(classes, (rows,), generator=generator).masked_fill(~mask, -1)
    logits = torch.randn(rows, classes, generator=generator)
    logits[list(lost)] = math.nan
    return logits.requires_grad_(), targets, mask


def _cases() -> list[tuple[Tensor, Tensor, Tensor]]:
    return [
        _masked_case((0, 3, 4, 9)),
        _masked_case((7,)),
        _masked_case(range(12)),
        _masked_case(()),
        _masked_case((), rows=3),
        _masked_case((0, 2), rows=5, classes=3),
        _masked_case((1, 3, 4, 5, 8), rows=9),
        _masked_case((1, 2, 5), lost=[2]),
        _masked_case((0, 1), rows=4, lost=[0, 1]),
        _masked_case((0, 3, 4), rows=7, lost=[1]),
        _masked_case((2,), rows=4, lost=[0, 3]),
        _masked_case((), rows=4, lost=[0, 3]),
    ]


class Trained(NamedTuple):
    """A loss, and the gradient of the logits; None where the loss has no graph."""

    loss: float
    gradient: Any


def _look(got: Any, logits: Tensor, targets: Tensor, mask: Tensor) -> Trained:
    judge = Judge()
    judge.is_a(got, Tensor, "a tensor with one number")
    if got.numel() != 1:
        judge.no(seen=f"a tensor of shape {tuple(got.shape)}", expected="one number")
    if got.requires_grad:
        got.sum().backward()
    return Trained(got.item(), logits.grad)


def _alike(got: Trained, right: Trained) -> bool:
    if not nearly(1e-4, 1e-6)(got.loss, right.loss):
        return False
    if math.isnan(right.loss):  # a gradient of it says no more
        return got.gradient is not None
    return got.gradient is not None and bool(
        torch.allclose(got.gradient, right.gradient, rtol=1e-4, atol=1e-6, equal_nan=True)
    )


_FILLED = "logits.masked_fill(~mask[:, None], 0)"
_CLEAN = {_FILLED: "logits"}
_FILL = "targets.masked_fill(~mask, -100)"
_CLAMP = {_FILL: "targets.clamp(min=0)"}
_COUNT = "mask.sum().clamp(min=1)"
_TOTAL = 'F.cross_entropy(clean, kept, reduction="sum")'
_MEAN = "F.cross_entropy(clean, kept)"
_EACH = 'F.cross_entropy(clean, kept, reduction="none")'


def _both(*some: dict[str, str]) -> tuple[Callable[..., Any], ...]:
    """Return the twins of these edits, with the logits of the padding filled and as they are."""
    return tuple(edited(masked_loss, {**edits, **more}) for edits in some for more in ({}, _CLEAN))


_MISTAKES = {
    "nan-gradient": _CLEAN,
    "divided-by-all": _both(
        {_COUNT: "len(mask)"}, {_TOTAL: _MEAN, f" / {_COUNT}": " * mask.float().mean()"}
    ),
    "nan-in-padding": {**_CLEAN, **_CLAMP, _TOTAL: f"({_EACH} * mask).sum()"},
    "hides-nan": _both(
        {"(clean, kept": "(clean.nan_to_num(), kept"},
        {_TOTAL: _MEAN, f" / {_COUNT}": ".nan_to_num(0.0)"},
        {"return total": "total = total.nan_to_num(0.0)\nreturn total"},
        {_TOTAL: f"{_EACH}.nan_to_num(0.0).sum()"},
    ),
}
TWINS = twins_of(masked_loss, _MISTAKES)


def _situation(logits: Tensor, targets: Tensor, mask: Tensor) -> str:
    nan = logits[:, 0].isnan()
    text = f"{int(mask.sum())} of {len(mask)} rows that count"
    text += f", {lost} of them with NaN" if (lost := int((nan & mask).sum())) else ""
    return f"{text}, NaN in the padding" if (nan & ~mask).any() else text


def _shown(trained: Trained) -> str:
    loss = f"{trained.loss:.5g}"
    if trained.gradient is None:
        return f"{loss} without a graph"
    return f"{loss}, a gradient of length {trained.gradient.norm():.5g}"


MEANS = OverCases(
    masked_loss,
    _cases,
    TWINS,
    look=_look,
    alike=_alike,
    situation=_situation,
    shown=_shown,
)


@one_thread()
def _check_masked_loss(answer: Callable[..., Any], judge: Judge) -> None:
    if problem := simgpu.problem():
        print(f"Judged without the simulated device, so waits are not counted. {problem}")
    else:
        _judge_mask_waits(answer, judge)
    MEANS(answer, judge)


def _judge_mask_waits(answer: Callable[..., Any], judge: Judge) -> None:
    with memory.spare_device("1 GB") as device:
        case = tuple(t.detach().to(device) for t in _masked_case((0, 3, 4, 9)))
        with simgpu.count() as counters:
            try:
                answer.__wrapped__(*case)  # the guard would look at the inputs, and wait
            except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
                raise Raised(without_this_frame(error)) from None
        del case
    if counters.synchronizations or counters.copies_to_host:
        judge.no(
            "waits", seen=f"waits of the host: {counters.synchronizations}", expected="no wait"
        )


EXERCISE = Exercise(
    id="08.masked_loss",
    title="A mask that nobody waits for",
    level=2,
    minutes=6,
    task="""
Text is padded, and padding must not count. But `F.cross_entropy(logits[mask], targets[mask])` lets the host wait in
every step. Write `masked_loss(logits, targets, mask)`: the same mean over the rows where `mask` is True, as a tensor
with its graph, without a wait. In the other rows the target is -1, and the logits may be NaN: their gradient is 0
all the same. Where no row counts, the loss is 0. A loss that is NaN because training diverged stays NaN.
""",
    hints=(
        "Why must the host wait for `logits[mask]`? What does it not know?",
        "Keep all rows, so that no shape depends on values. `cross_entropy` leaves out rows whose target is its "
        "`ignore_index`, by default -100.",
        '`targets.masked_fill(~mask, -100)`, `reduction="sum"`, and a division by the number of True that is at '
        "least 1: `.clamp(min=1)`. A loss that is left out has a gradient of 0, and in backward 0 × NaN is NaN: fill the "
        "logits too, before the loss.",
    ),
    reference=masked_loss,
    check_answer=_check_masked_loss,
    why="The shape of `logits[mask]` depends on the values in `mask`, and they are on the device. So Python "
    "waits until they are known. The same holds for `nonzero`, `unique`, `torch.where(mask)` and `if "
    "mask.any():`. A fixed shape with something neutral in it costs a little arithmetic and no wait.",
    diagnoses={
        "waits": "The host waits for the device: a shape, an `if`, a copy to the host needs values that are there.",
        "nan-gradient": "The loss is right, and the gradient of the padding is NaN: a NaN that is left out of the loss comes "
        "back in backward, where 0 × NaN is NaN. Fill the logits before the loss.",
        "divided-by-all": "The sum is divided by the number of all rows. Only those that count belong in the mean.",
        "nan-in-padding": "A NaN in the padding spoils the loss: 0 × NaN is NaN. `torch.where` chooses, and does not multiply.",
        "hides-nan": "A loss that is NaN has become a number. Where training diverged, the loss must show it.",
    },
)
