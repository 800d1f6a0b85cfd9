"""What a format throws away."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge

from .checking import listed


def lost(gradients, dtype):
    nonzero = gradients[gradients != 0]
    gone = (nonzero.to(dtype) == 0).sum()
    return gone.item() / max(len(nonzero), 1)


def _check_lost(answer: Callable[..., Any], judge: Judge) -> None:
    half, bf16 = torch.float16, torch.bfloat16
    mixed = [1e-3, 1e-6, 4e-8, 2.5e-8, -1e-9, -3e-5, 0.0, 0.0, 70000.0, 1.0]
    cases = [
        (torch.tensor([0.5, 0.1, -0.3]), half),  # rounded, but not lost
        (torch.tensor([1e-6, -1e-9, 2.0, 1e-12]), half),
        (torch.tensor([0.0, 1e-9, 1.0, 0.0]), half),
        (torch.tensor([2.0**-25, 1.01 * 2.0**-25, 2.0**-24, 1.0]), half),
        (torch.tensor(mixed), half),
        (torch.tensor(mixed), bf16),
        (torch.tensor([[1e-50, 1e-9], [0.0, -1e-30]], dtype=torch.float64), bf16),
        (torch.tensor([[1e-50, 1e-9], [0.0, -1e-30]], dtype=torch.float64), torch.float32),
        (torch.tensor([1e-9]), half),
        (torch.tensor([0.0, 0.0]), half),
    ]
    twins = {
        "all-entries": lost_of_all,
        "zero-before": lost_zeros,
        "subnormals": lost_below_tiny,
        "threshold": lost_below_smallest,
        "rounded": lost_changed,
        "dtype-ignored": lost_in_half,
        "per-cent": lost_per_cent,
    }
    for gradients, dtype in cases:
        expected = lost(gradients, dtype)
        got = answer(gradients, dtype)
        numeric = isinstance(got, (float, torch.Tensor))
        if numeric and not gradients.any() and torch.as_tensor(got).isnan().all():
            judge.no("nothing-to-lose", seen=f"nan for {listed(gradients)}", expected="0")
        got = judge.number(got)
        if not math.isclose(got, expected, rel_tol=1e-5):
            like = [name for name, f in twins.items() if math.isclose(got, f(gradients, dtype))]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{got:g} for {listed(gradients)} in {dtype}",
                expected=f"{expected:g}",
            )


def lost_of_all(gradients, dtype):
    return ((gradients != 0) & (gradients.to(dtype) == 0)).float().mean().item()


def lost_zeros(gradients, dtype):
    return (gradients.to(dtype) == 0).float().mean().item()


def lost_below_tiny(gradients, dtype):
    nonzero = gradients[gradients != 0]
    return (nonzero.abs() < torch.finfo(dtype).tiny).sum().item() / max(len(nonzero), 1)


def lost_below_smallest(gradients, dtype):
    nonzero = gradients[gradients != 0]
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    return (nonzero.abs() < smallest).sum().item() / max(len(nonzero), 1)


def lost_changed(gradients, dtype):
    nonzero = gradients[gradients != 0]
    return (nonzero.to(dtype).double() != nonzero.double()).sum().item() / max(len(nonzero), 1)


def lost_in_half(gradients, dtype):
    return lost(gradients, torch.float16)


def lost_per_cent(gradients, dtype):
    return 100 * lost(gradients, dtype)


EXERCISE = Exercise(
    id="04.lost",
    title="What a format throws away",
    level=1,
    minutes=6,
    task="""
Write `lost(gradients, dtype)`: of the entries of the tensor `gradients` that are not zero, which share is
zero after a conversion to `dtype`? Return a number from 0 to 1; where no entry is nonzero, nothing is
lost: 0. A value that is only rounded, or becomes infinite, is not lost.
""",
    hints=(
        "Do not calculate limits: convert, and look at what became zero.",
        "`gradients[gradients != 0]` holds the entries that can be lost. How many of them are `== 0` "
        "after `.to(dtype)`?",
        "Divide by the number of entries that can be lost; `max(..., 1)` keeps you from dividing by 0.",
    ),
    reference=lost,
    check_answer=_check_lost,
    why="Often this understates what float16 costs a deep network: in a backward pass in 16 bits factors "
    "are lost on the way too. No error or warning says so.",
    diagnoses={
        "all-entries": "The share is one of the entries that were not zero: a gradient that is "
        "zero already has nothing to lose.",
        "zero-before": "Entries that were zero before were counted as lost.",
        "subnormals": "`torch.finfo(dtype).tiny` is the smallest number with all its bits. Below it come "
        "smaller ones with fewer bits, the subnormals: they are coarse, but they are not zero.",
        "threshold": "Half of the smallest number and what lies below becomes zero; what lies above "
        "is rounded up. Let the conversion itself decide.",
        "rounded": "A value that changes is rounded, not lost. Count those that become zero.",
        "dtype-ignored": "The answer is that for float16, whatever format is asked for.",
        "per-cent": "That is in per cent. The task asks for a number from 0 to 1.",
        "nothing-to-lose": "Where no entry is nonzero you divided 0 by 0. Nothing is lost there.",
    },
)
