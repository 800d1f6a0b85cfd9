"""What several checks of this lesson share."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import simgpu
from course_utils.exercises import Exercise, Judge
from course_utils.number_format import seconds

from . import detective
from .detective import Run

SLACK = {"a": 0.7, "b": 0.7}
"""Which share of what the reference gains an answer may leave lying; 0.3 for the others. The waits of loop a
and the copies of loop b are counted, so the time need only show that the mend costs less than they did."""


def without_sim(letter: str, answer: Callable[..., Any], judge: Judge) -> bool:
    """Judge what can be judged where there is no simulated device; return whether that was all."""
    if not simgpu.problem():
        return False
    print("Judged without the simulated device: the result, not the time.")
    judge_result(letter, detective.run_on_cpu(letter, answer), judge)
    return True


def _mended(letter: str) -> Callable[..., Any]:
    """Return the reference of one of the loops."""
    name = f"mend_{letter}"
    return getattr(importlib.import_module(f"{__package__}.{name}"), name)


@functools.cache
def reference_run(letter: str, values: bool = True) -> Run:
    return detective.run(letter, _mended(letter), values=values, facts=False)


@functools.cache
def faulty_run(letter: str) -> Run:
    return detective.run(letter, facts=False)


@functools.cache
def _on_cpu(letter: str) -> Run:
    return detective.run_on_cpu(letter, _mended(letter))


def limit(letter: str) -> float:
    """Return the modelled seconds that an answer may take."""
    best = reference_run(letter, values=False).seconds
    return best + SLACK.get(letter, 0.3) * (faulty_run(letter).seconds - best)


_TOLERANCE = {"e": 0.05}


def judge_result(letter: str, got: Run, judge: Judge, twins: Mapping[str, Any] = {}) -> None:
    """Compare what was returned, and the weights, with those of the faulty loop."""
    right = _on_cpu(letter) if simgpu.problem() else reference_run(letter)
    tolerance = _TOLERANCE.get(letter, 1e-3)
    values = got.result if isinstance(got.result, (list, tuple)) else [got.result]
    if any(isinstance(value, Tensor) for value in values):
        judge.no("tensors", seen="tensors in the place of numbers", expected="Python numbers")
    judge.is_a(got.result, list, "a list of Python numbers")
    if len(values) != len(right.result):
        judge.no(
            "other-length", seen=f"{len(values)} numbers", expected=f"{len(right.result)} numbers"
        )
    numbers = [judge.number(value) for value in values]
    off = _off(got.moved, right.moved)
    if not _close(numbers, right.result, tolerance):
        like = [name for name, twin in twins.items() if _close(numbers, twin(right), 1e-3)]
        judge.no(
            like[0] if like else "other-result" if off > tolerance else "other-numbers",
            seen=_short(numbers),
            expected=_short(right.result),
        )
    for dtype in {*got.dtypes, *(w.dtype for w in got.weights)} - {torch.float32}:
        judge.no("weights-dtype", seen=f"weights in {dtype}", expected="float32 in every step")
    if off > tolerance:
        judge.no(
            "other-weights",
            seen=f"weights whose change is {off:.1%} off",
            expected="those of the given loop",
        )


def _close(got: Sequence[float], right: Sequence[float], tolerance: float) -> bool:
    return len(got) == len(right) and all(
        math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-6) for a, b in zip(got, right, strict=True)
    )


def _off(got: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    far = sum(
        float((g.double() - r.double()).square().sum()) for g, r in zip(got, right, strict=True)
    )
    return math.sqrt(far / sum(float(r.double().square().sum()) for r in right))


def _short(numbers: Sequence[float]) -> str:
    return "[" + ", ".join(f"{number:.4g}" for number in numbers[:6]) + "]"


def times(letter: str, got: Run) -> dict[str, str]:
    return {
        "seen": f"{seconds(got.seconds)} (modelled); the given loop takes {seconds(faulty_run(letter).seconds)}",
        "expected": f"at most {seconds(limit(letter))}",
    }


def judge_waits(got: Run, judge: Judge, own: int = 0) -> None:
    """Refuse a wait in each step, which loops b to e do not have; ``own`` are no fault of the answer's.

    The first step or the last may do without: its number is asked for before or after it is made.
    """
    steps = len(got.steps)
    waits = got.steps[-1].waits - own if steps else 0
    if waits >= max(2, steps - 1):
        judge.no(
            "waits-each-step",
            seen=f"the host waited {waits} times before the last of {steps} steps was made",
            expected="no wait before the steps are made",
        )


@functools.cache
def _twin_result(letter: str, twin: Callable[..., Any]) -> list[float]:
    return detective.run(letter, twin, values=True, facts=False).result


def twin_of(letter: str, twin: Callable[..., Any], right: Run) -> list[float]:
    return _twin_result(letter, twin)


_RESULT = {
    "tensors": "The list holds tensors. Make Python numbers of them once, when all steps are made.",
    "other-length": "The list has another length than the given loop's.",
    "other-result": "The loop got other numbers than the given one. It shall train in the same way on the same "
    "data, only faster.",
    "other-numbers": "The loop trains as the given one does, and returns other numbers.",
    "weights-dtype": "The weights are not float32, or were not when a step was made. In 16 bits a small step is lost.",
    "other-weights": "The numbers agree and the weights do not: not every step is made as the given loop makes it.",
    "waits-each-step": "The host now waits for the device in every step, as the given loop did not. Keep the numbers on the "
    "device, and read them when all steps are made.",
    "slow": "The result is right and the time is not. Look at the timeline of your loop: who waits for whom?",
}


def mend(
    letter: str,
    *,
    reference: Callable[..., Any],
    check_answer: Callable[[Any, Judge], None],
    title: str,
    task: str,
    level: int,
    minutes: int,
    hints: tuple[str, ...],
    why: str,
    diagnoses: Mapping[str, str],
) -> Exercise:
    """Return the exercise of one of the detective's loops."""
    return Exercise(
        id=f"07.mend_{letter}",
        title=title,
        task=task,
        level=level,
        minutes=minutes,
        hints=hints,
        reference=reference,
        check_answer=check_answer,
        why=why,
        diagnoses={**_RESULT, **diagnoses},
        may_change=True,
    )
