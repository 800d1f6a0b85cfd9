"""A mask that nobody waits for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import simgpu
from course_lessons.shared.checking import one_thread
from course_utils import memory
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised

from .checking import without_this_frame


def masked_loss(logits, targets, mask):
    kept = targets.masked_fill(~mask, -100)
    total = F.cross_entropy(logits, kept, reduction="sum")
    return total / mask.sum().clamp(min=1)


_ROWS = 12


def _masked_case(kept: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return logits, targets and mask; the targets of rows that do not count are no class."""
    torch.manual_seed(len(kept))
    mask = torch.zeros(_ROWS, dtype=torch.bool)
    mask[list(kept)] = True
    targets = torch.randint(5, (_ROWS,)).masked_fill(~mask, -1)
    return torch.randn(_ROWS, 5), targets, mask


def _with_gradient(loss_of: Callable[..., Any], case: tuple[Tensor, ...]) -> tuple[Any, Any]:
    logits = case[0].clone().requires_grad_()
    loss = loss_of(logits, *case[1:])
    if isinstance(loss, Tensor) and loss.requires_grad and loss.numel() == 1:
        loss.backward()
    return loss, logits.grad


@one_thread()
def _check_masked_loss(answer: Callable[..., Any], judge: Judge) -> None:
    for kept in (range(_ROWS), (0, 3, 4, 9), (7,)):
        _judge_mean(answer, kept, judge)
    if problem := simgpu.problem():
        print(f"Judged without the simulated device, so waits are not counted. {problem}")
    else:
        _judge_mask_waits(answer, judge)
    _judge_mean(answer, (), judge)


def _judge_mean(answer: Callable[..., Any], kept: Sequence[int], judge: Judge) -> None:
    """Refuse another loss, or gradient, than that of the mean over the rows in ``kept``."""
    case = _masked_case(kept)
    right, gradient = _with_gradient(masked_loss, case)
    got, found = _with_gradient(answer, case)
    judge.is_a(got, Tensor, "a tensor with one number")
    if got.numel() != 1:
        judge.no("not-one", seen=f"a tensor of shape {tuple(got.shape)}", expected="one number")
    seen = f"{got.item():.5g} where {len(kept)} of {_ROWS} rows count"
    if not kept and got.item() != 0:
        judge.no("none-counts", seen=seen, expected="0")
    if not math.isclose(got.item(), right.item(), rel_tol=1e-4, abs_tol=1e-7):
        twins = {
            "divided-by-all": right.item() * len(kept) / _ROWS,
            "summed": right.item() * len(kept),
        }
        like = [name for name, v in twins.items() if math.isclose(got.item(), v, rel_tol=1e-4)]
        judge.no(like[0] if like else "wrong-value", seen=seen, expected=f"{right.item():.5g}")
    if found is None or not torch.allclose(found, gradient, atol=1e-6):
        judge.no("no-gradient", seen="no gradient, or another", expected="that of the mean")


def _judge_mask_waits(answer: Callable[..., Any], judge: Judge) -> None:
    with memory.spare_device("1 GB") as device:
        case = tuple(t.to(device) for t in _masked_case((0, 3, 4, 9)))
        with simgpu.count() as counters:
            try:
                answer.__wrapped__(*case)  # the guard would look at the inputs, and wait
            except Exception as error:  # noqa: BLE001  (whatever it was, it is the learner's)
                raise Raised(without_this_frame(error)) from None
        del case
    if counters.synchronizations or counters.copies_to_host:
        judge.no(
            "waits",
            seen=f"the host waited {counters.synchronizations} times",
            expected="no wait",
        )


EXERCISE = Exercise(
    id="08.masked_loss",
    title="A mask that nobody waits for",
    level=2,
    minutes=6,
    task="""
Text is padded, and padding must not count. The usual line, `F.cross_entropy(logits[mask], targets[mask])`, lets
the host wait in every step. Write `masked_loss(logits, targets, mask)`: the same mean over the rows where
`mask` is True, as a tensor with its graph, and without a wait. In the other rows the target is -1. Where no row
counts, the loss is 0.
""",
    hints=(
        "Why must the host wait for `logits[mask]`? What does it not know?",
        "Keep all rows, so that no shape depends on values. `cross_entropy` leaves out rows whose target is its "
        "`ignore_index`, by default -100.",
        '`targets.masked_fill(~mask, -100)`, `reduction="sum"`, and a division by the number of True that is at '
        "least 1: `.clamp(min=1)`.",
    ),
    reference=masked_loss,
    check_answer=_check_masked_loss,
    why="The shape of `logits[mask]` depends on the values in `mask`, and they are on the device. So Python "
    "waits until they are known. The same holds for `nonzero`, `unique`, `torch.where(mask)` and `if "
    "mask.any():`. A fixed shape with something neutral in it costs a little arithmetic and no wait.",
    diagnoses={
        "waits": "The host waits for the device. A shape, an `if` or a Python number depends on values that are "
        "there.",
        "divided-by-all": "The sum is divided by the number of all rows. Only those that count belong in the "
        "mean.",
        "summed": "That is the sum. The mean is asked for.",
        "none-counts": "Where no row counts, this is no 0. Zero divided by zero is no number.",
        "not-one": "The loss is one number.",
        "no-gradient": "The gradient of the logits is not that of the mean.",
    },
)
