"""What a format throws away."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases

from .checking import listed


def lost(gradients, dtype):
    nonzero = gradients[gradients != 0]
    gone = (nonzero.to(dtype) == 0).sum()
    return gone.item() / max(len(nonzero), 1)


def _cases() -> Iterator[tuple[torch.Tensor, torch.dtype]]:
    half, bf16 = torch.float16, torch.bfloat16
    mixed = [1e-3, 1e-6, 4e-8, 2.5e-8, -1e-9, -3e-5, 0.0, 0.0, 70000.0, 1.0]
    double = torch.tensor([[1e-50, 1e-9], [0.0, -1e-30]], dtype=torch.float64)
    yield torch.tensor([0.5, 0.1, -0.3]), half  # rounded, but not lost
    yield torch.tensor([1e-6, -1e-9, 2.0, 1e-12]), half
    yield torch.tensor([0.0, 1e-9, 1.0, 0.0]), half
    yield torch.tensor([2.0**-25, 1.01 * 2.0**-25, 2.0**-24, 1.0]), half
    yield torch.tensor(mixed), half
    yield torch.tensor(mixed), bf16
    yield double, bf16
    yield double.clone(), torch.float32
    yield torch.tensor([1e-9]), half
    yield torch.tensor([0.0, 0.0]), half
    yield torch.zeros(2, 3), bf16


_GONE = "nonzero.to(dtype) == 0"
_SMALLEST = "torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps"
_TWINS = {
    "all-entries": edited(lost, {"max(len(nonzero), 1)": "gradients.numel()"}),
    "zero-before": edited(lost, {"gradients[gradients != 0]": "gradients.flatten()"}),
    "subnormals": edited(lost, {_GONE: "nonzero.abs() < torch.finfo(dtype).tiny"}),
    "threshold": edited(lost, {_GONE: f"nonzero.abs() < {_SMALLEST}"}),
    "rounded": edited(lost, {_GONE: "nonzero.to(dtype) != nonzero"}),
    "dtype-ignored": edited(lost, {"to(dtype)": "half()"}),
    "per-cent": lambda gradients, dtype: 100 * lost(gradients, dtype),
    "nothing-to-lose": edited(lost, {"gone.item() / max(len(nonzero), 1)": "gone / len(nonzero)"}),
}


def _read(judge: Judge, got: Any) -> float:
    """Let a nan pass: it may come from a division by no entries."""
    number = got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got
    return number if isinstance(number, float) and math.isnan(number) else judge.number(got)


def _alike(got: float, right: float) -> bool:
    return math.isclose(got, right, rel_tol=1e-5) or (math.isnan(got) and math.isnan(right))


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
    check_answer=OverCases(
        lost,
        _cases,
        _TWINS,
        read=_read,
        alike=_alike,
        situation=lambda gradients, dtype: f"{listed(gradients)} in {dtype}",
    ),
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
