"""What the checks of the detective's loops share.

A loop is judged twice: its numbers and the weights it leaves are compared with those of the given loop, at a
small size; then what it asked of the simulated device is looked at. A wrong result is compared with those of
known mistakes: where the weights are wrong, a known mistake must leave the same weights; where they are right, it
must return the same numbers.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import simgpu
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.values import diff_texts, nearly, rounded
from course_utils.number_format import seconds

from . import detective
from .detective import Run

Loop = Callable[..., Any]
KnownMistakes = Mapping[str, Any]
"""For each diagnosis a wrong loop."""

SLACK = {"a": 0.7, "b": 0.7}
"""Which share of what the reference gains an answer may leave lying; 0.3 for the others. The waits of loop a
and the copies of loop b are counted, so the time need only show that the mend costs less than they did."""

_TOLERANCE = {"e": 0.05}
"""How far a number may be off, as a share; rounding in float32 for the others."""


def _mended(letter: str) -> Loop:
    """Return the reference of one of the loops."""
    name = f"mend_{letter}"
    return getattr(importlib.import_module(f"{__package__}.{name}"), name)


@functools.cache
def reference_run(letter: str) -> Run:
    return detective.run(letter, _mended(letter), facts=False)


@functools.cache
def faulty_run(letter: str) -> Run:
    return detective.run(letter, facts=False)


@functools.cache
def _on_cpu(letter: str, loop: Loop | None = None) -> Run:
    return detective.run_on_cpu(letter, loop)


def limit(letter: str) -> float:
    """Return the modelled seconds that an answer may take."""
    best = reference_run(letter).seconds
    return best + SLACK.get(letter, 0.3) * (faulty_run(letter).seconds - best)


def judge_result(letter: str, got: Run, judge: Judge, known_mistakes: KnownMistakes) -> None:
    """Compare what was returned, and the weights, with those of the given loop."""
    right = _on_cpu(letter)
    tolerance = _TOLERANCE.get(letter, 1e-4)
    listed = _numbers(got.result, judge)
    for dtype in {*got.dtypes, *(w.dtype for w in got.weights)} - {torch.float32}:
        judge.no("weights-dtype", seen=f"weights in {dtype}", expected="float32 in every step")
    here = "cpu" if simgpu.problem() else "sim"
    if got.devices - {here}:
        judge.no(seen="steps with the weights on the CPU", expected=f"on {here}")
    judge.expect("steps of the given optimizer", got.made, right.made)
    judge.expect("numbers in the list", len(listed), len(right.result))
    trained = _off(got.moved, right.moved) <= tolerance
    alike = nearly(tolerance, 1e-6)(listed, right.result)
    if trained and alike:
        return
    seen, expected = diff_texts(*map(_rounded, (listed, right.result)), nearly(tolerance, 1e-4))
    if alike:
        seen = f"weights whose change is off by {_off(got.moved, right.moved):.2g} of it"
        expected = "those of the given loop"
    if trained and any(listed) and all(map(rounded, listed, right.result)):
        judge.no("rounded", seen=f"{listed[0]:.7g}", expected=f"{right.result[0]:.7g}")
    for diagnosis, loop in known_mistakes.items():
        mistake = _on_cpu(letter, loop)
        mistake_trained = _off(mistake.moved, right.moved) <= tolerance
        if trained and mistake_trained and nearly(1e-3, 1e-6)(listed, mistake.result):
            judge.no(diagnosis, seen=seen, expected=expected)
        if not (trained or mistake_trained) and _off(got.moved, mistake.moved) <= max(
            1e-3, tolerance
        ):
            judge.no(diagnosis, seen=seen, expected=expected)
    judge.no(seen=seen, expected=expected)


def _numbers(result: Any, judge: Judge) -> list[float]:
    values = result if isinstance(result, (list, tuple)) else [result]
    if any(isinstance(value, Tensor) for value in values):
        judge.no(seen="tensors in the place of numbers", expected="Python numbers")
    judge.is_a(result, (list, tuple), "a list of Python numbers")
    for value in values:
        judge.is_a(value, numbers.Real, "a list of Python numbers")
    return [float(value) for value in values]


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]


def _off(got: Sequence[Tensor], right: Sequence[Tensor]) -> float:
    """Return how far the weights' changes are from the right ones, as a share of these."""
    far = sum(
        float((g.double() - r.double()).square().sum()) for g, r in zip(got, right, strict=True)
    )
    whole = sum(float(r.double().square().sum()) for r in right)
    share = math.sqrt(far / whole) if whole else math.inf
    return share if math.isfinite(share) else math.inf


def times(letter: str, got: Run) -> dict[str, str]:
    return {
        "seen": f"{seconds(got.seconds)} (modelled); the given loop takes {seconds(faulty_run(letter).seconds)}",
        "expected": f"at most {seconds(limit(letter))}",
    }


def judge_waits(
    got: Run, judge: Judge, own: int = 0, few: int | None = None, diagnosis: str = "waits-each-step"
) -> None:
    """Refuse a wait in each step, and more than ``few`` waits; ``own`` are no fault of the answer's.

    The first step or the last may do without: its number is asked for before or after it is made.
    """
    stood, steps = [0, *(step.waits for step in got.steps)], len(got.steps)
    waits = stood[-1] - own
    if waits > (max(1, steps - 2) if few is None else few):
        within = sum(b - a > own / steps for a, b in itertools.pairwise(stood))
        judge.no(
            diagnosis if within >= steps - 1 else "wrong-value",
            seen=f"{waits} waits in {within} of {steps} steps, copies to the device not counted",
            expected="no wait before the last step is made",
        )


def mend(
    letter: str,
    *,
    reference: Loop,
    known_mistakes: KnownMistakes,
    judge_small: Callable[[Run, Judge], None] | None = None,
    judge_work: Callable[[Run, Judge], None],
    diagnoses: Mapping[str, str],
    **texts: Any,
) -> Exercise:
    """Return the exercise of one of the detective's loops.

    ``judge_work`` gets the run in which times count, ``judge_small`` before that the run at a small size, which
    alone has values.
    """

    def check(answer: Loop, judge: Judge) -> None:
        if simgpu.problem():
            print("Judged without the simulated device: the result, not the time.")
            judge_result(letter, detective.run_on_cpu(letter, answer), judge, known_mistakes)
            return
        small = detective.run(letter, answer, values=True, facts=False)
        early = any(copy.non_blocking and copy.code == "d2h" for copy in small.counters.copies)
        if early and not small.counters.synchronizations:
            judge.no(
                "too-early", seen="a copy that nobody waited for", expected="a wait at the end"
            )
        if small.changed:
            judge.no("changed-input", seen="other numbers in the batches", expected="those given")
        judge_result(letter, small, judge, known_mistakes)
        if judge_small:
            judge_small(small, judge)
        hollow = detective.CASES[letter].hollow
        judge_work(detective.run(letter, answer, facts=False) if hollow else small, judge)

    return Exercise(
        id=f"07.mend_{letter}",
        reference=reference,
        check_answer=check,
        diagnoses=diagnoses,
        may_change=True,
        **texts,
    )
