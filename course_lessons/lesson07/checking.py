"""What the checks of the detective's loops share.

A loop is judged twice: its numbers and the weights it leaves are compared with those of the given loop, at a
small size; then what it asked of the simulated device is looked at. A wrong result is compared with those of
wrong twins: where the weights are wrong, a twin must leave the same weights; where they are right, it
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
from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import apart, nearly
from course_utils.number_format import seconds

from . import detective
from .detective import Run

Loop = Callable[..., Any]
Twins = Mapping[str, Any]
"""For each diagnosis a wrong loop, or several."""

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


def usual_twins(reference: Loop, numbers: str = "torch.stack(losses)") -> Twins:
    """Return the mistakes that any training loop can have; ``numbers`` is the tensor that it returns."""

    def returns(tensor: str) -> Loop:
        return edited(reference, {f"return {numbers}.tolist()": f"return ({tensor}).tolist()"})

    return {
        "no-zero-grad": edited(reference, {"optimizer.zero_grad()": ""}),
        "running-sum": returns(f"{numbers}.cumsum(0)"),
        "running-mean": returns(
            f"{numbers}.cumsum(0) / torch.arange(1, len({numbers}) + 1, device={numbers}.device)"
        ),
        "last-number": returns(f"{numbers}[-1].expand(len({numbers}))"),
        "reversed": returns(f"{numbers}.flip(0)"),
    }


def judge_result(letter: str, got: Run, judge: Judge, twins: Twins) -> None:
    """Compare what was returned, and the weights, with those of the given loop."""
    right = _on_cpu(letter)
    tolerance = _TOLERANCE.get(letter, 1e-4)
    found = _numbers(got.result, judge)
    for dtype in {*got.dtypes, *(w.dtype for w in got.weights)} - {torch.float32}:
        judge.no("weights-dtype", seen=f"weights in {dtype}", expected="float32 in every step")
    here = "cpu" if simgpu.problem() else "sim"
    if got.devices - {here}:
        judge.no("on-the-host", seen="steps with the weights on the CPU", expected=f"on {here}")
    if got.made != right.made:
        seen, expected = (f"{run.made} steps of the given optimizer" for run in (got, right))
        judge.no("other-steps" if got.made else "no-step", seen=seen, expected=expected)
    if len(found) != len(right.result):
        seen, expected = (f"{len(n)} numbers, {got.made} steps" for n in (found, right.result))
        judge.no("other-length", seen=seen, expected=expected)
    alike = nearly(tolerance, 1e-6)
    trained, listed = _off(got.moved, right.moved) <= tolerance, alike(found, right.result)
    if trained and listed:
        return
    seen, expected = apart(*map(_rounded, (found, right.result)), nearly(tolerance, 1e-4))
    if listed:
        seen = f"weights whose change is off by {_off(got.moved, right.moved):.2g} of it"
        expected = "those of the given loop"
    if not any(float(moved.abs().sum()) for moved in got.moved):
        judge.no("no-change", seen="0 of the weights changed", expected="each step changes them")
    digits = [[round(n, d) for n in right.result] for d in (1, 2, 3, 4, 5)]
    if trained and any(nearly(1e-7, 0)(found, cut) for cut in digits):
        judge.no("rounded", seen=f"{found[0]:.7g}", expected=f"{right.result[0]:.7g}")
    for diagnosis, loops in twins.items():
        for loop in several(loops):
            twin = _on_cpu(letter, loop)
            apart_ = _off(twin.moved, right.moved) > tolerance
            if trained and not apart_ and nearly(1e-3, 1e-6)(found, twin.result):
                judge.no(diagnosis, seen=seen, expected=expected)
            if not trained and apart_ and _off(got.moved, twin.moved) <= max(1e-3, tolerance):
                judge.no(diagnosis, seen=seen, expected=expected)
    if not all(map(math.isfinite, found)):
        judge.no("not-finite" if trained else "diverged", seen=seen, expected=expected)
    if trained and not any(found):
        judge.no("zeros", seen=seen, expected=expected)
    factor = found[0] / right.result[0]
    if trained and alike(found, [factor * number for number in right.result]):
        judge.no("scaled", seen=seen, expected=expected)
    if listed:
        judge.no("other-weights", seen=seen, expected=expected)
    names = ("carried", "other-numbers") if trained else ("other-update", "other-loss")
    first = nearly(tolerance / 5, 1e-6)(found[0], right.result[0])
    judge.no(names[not first], seen=seen, expected=expected)


def _numbers(result: Any, judge: Judge) -> list[float]:
    values = result if isinstance(result, (list, tuple)) else [result]
    if any(isinstance(value, Tensor) for value in values):
        judge.no("tensors", seen="tensors in the place of numbers", expected="Python numbers")
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
        often = waits > 2 * steps and diagnosis == "waits-each-step"
        judge.no(
            "waits-often" if often or within < steps - 1 else diagnosis,
            seen=f"{waits} waits in {within} of {steps} steps, copies to the device not counted",
            expected="no wait before the last step is made",
        )


_RESULT = {
    "tensors": "The list holds tensors. Make Python numbers of them once, when all steps are made.",
    "too-early": "A copy with `non_blocking=True` was read before it had arrived.",
    "weights-dtype": "The weights were not float32 in every step. In 16 bits a small step is lost.",
    "on-the-host": "The model was moved to the CPU and trained there. It belongs on the device.",
    "no-step": "The given optimizer never made a step.",
    "other-steps": "The given optimizer made another number of steps than in the given loop.",
    "other-length": "The steps are as many as they should be. The list has another length: one number for each is asked for.",
    "no-change": "The optimizer stepped, and no weight changed: it found no gradients. They must be this model's, and be "
    "there when it steps.",
    "no-zero-grad": "The gradients of earlier steps are still in those of the later ones: nothing empties them.",
    "running-sum": "The training is right. The list holds running sums, not each step's own number.",
    "running-mean": "The training is right. The list holds the means so far, not each step's own number.",
    "scaled": "The training is right. Each number is the right one times the same factor.",
    "zeros": "The training is right. All numbers of the list are 0.",
    "last-number": "The training is right. The last step's number stands in every place of the list.",
    "reversed": "The training is right. The numbers stand in the reverse order.",
    "rounded": "The training is right, and the numbers are rounded.",
    "other-numbers": "The weights end where they should, so the training is right. The list holds something else than the "
    "task asks for.",
    "carried": "The training is right, and so is the first number. A later one is not: look at what one step hands to the "
    "next.",
    "other-weights": "The numbers agree and the weights do not: not every step is made as the given loop makes it.",
    "other-update": "The first number is right. The step after it changes the weights otherwise than in the given loop.",
    "other-loss": "The number of the first step is another already, before any weight has changed: the loop computes it, "
    "and trains, otherwise than the given one.",
    "diverged": "The training diverged: its steps are far too long.",
    "not-finite": "The training is right, and a number of the list is not finite.",
    "waits-each-step": "In every step the host now waits for the device, and not for a copy to it. The given loop had no such "
    "wait. Whatever you need of the device, read it when all steps are made.",
    "waits-often": "Again and again the host now waits for the device before the last step is made, and not for a copy to it. Whatever needs a value from the device waits for it: "
    "`.item()`, an `if`, an index that lies there and is looked at number by number.",
    "slow": "The result is right and the time is not. Look at the timeline of your loop: who waits for whom?",
}


def mend(
    letter: str,
    *,
    reference: Loop,
    twins: Twins,
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
            judge_result(letter, detective.run_on_cpu(letter, answer), judge, twins)
            return
        small = detective.run(letter, answer, values=True, facts=False)
        early = any(copy.non_blocking and copy.code == "d2h" for copy in small.counters.copies)
        if early and not small.counters.synchronizations:
            judge.no(
                "too-early", seen="a copy that nobody waited for", expected="a wait at the end"
            )
        if small.changed:
            judge.no("changed-input", seen="other numbers in the batches", expected="those given")
        judge_result(letter, small, judge, twins)
        if judge_small:
            judge_small(small, judge)
        hollow = detective.CASES[letter].hollow
        judge_work(detective.run(letter, answer, facts=False) if hollow else small, judge)

    return Exercise(
        id=f"07.mend_{letter}",
        reference=reference,
        check_answer=check,
        diagnoses={**_RESULT, **diagnoses},
        may_change=True,
        **texts,
    )
