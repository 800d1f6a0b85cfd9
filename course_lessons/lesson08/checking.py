"""Helpers for the checks of the six loops with a planted fault.

A loop is judged twice: at a small size its numbers and weights are compared with those of the given loop;
then the work that it requested of the simulated device is examined. A wrong result is compared with those of
known mistakes: if the weights are wrong, a known mistake must leave the same weights; if they are right, it
must return the same numbers.
"""

from __future__ import annotations

import functools
import itertools
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

import simgpu
from course_language import _
from course_lessons.shared.checking import relative_error
from course_utils.exercises import Exercise, Judge, lesson
from course_utils.exercises.values import diff_texts, nearly, rounded
from course_utils.number_format import seconds

from . import detective
from .detective import Run

Loop = Callable[..., Any]

SLACK = {"a": 0.7, "b": 0.7}
"""The share of the reference's gain that an answer may miss; 0.3 for the others. The waits of loop a and the
copies of loop b are counted, so the time need only show that the repair costs less than they did."""

_TOLERANCE = {"e": 0.05}
"""The relative tolerance of a result; float32 rounding for the others."""


@functools.cache
def reference_run(letter: str) -> Run:
    """Return the run of the reference for a loop, on the simulated device."""
    reference = getattr(lesson("08"), f"mend_{letter}").reference
    return detective.run(letter, reference, facts=False)


@functools.cache
def faulty_run(letter: str) -> Run:
    """Return the run of the given, faulty loop, on the simulated device."""
    return detective.run(letter, facts=False)


@functools.cache
def _cpu_run(letter: str, loop: Loop | None = None) -> Run:
    """Return a loop's run on the CPU; by default the faulty loop's."""
    return detective.run_on_cpu(letter, loop)


def limit(letter: str) -> float:
    """Return the modelled seconds that an answer may take."""
    best = reference_run(letter).seconds
    return best + SLACK.get(letter, 0.3) * (faulty_run(letter).seconds - best)


def judge_result(letter: str, got: Run, judge: Judge, known_mistakes: Mapping[str, Loop]) -> None:
    """Compare the returned numbers, the weights and the optimizer steps with those of the given loop.

    ``known_mistakes`` has a wrong loop for each diagnosis.
    """
    right, tolerance = _cpu_run(letter), _TOLERANCE.get(letter, 1e-4)
    listed = _python_floats(got.result, judge)
    for dtype in got.dtypes - {torch.float32}:
        judge.no(
            "weights-dtype",
            seen=_("weights in {dtype}").format(dtype=dtype),
            expected=_("float32 in every step"),
        )
    here = "cpu" if simgpu.unavailable_reason() else "sim"
    if got.devices - {here}:
        judge.no(seen=_("steps with the weights on the CPU"), expected=_("on {here}").format(here=here))
    judge.expect(_("steps of the given optimizer"), got.optimizer_steps, right.optimizer_steps)
    judge.expect(_("numbers in the list"), len(listed), len(right.result))
    off = relative_error(got.moved, right.moved)
    trained, alike = off <= tolerance, nearly(tolerance, 1e-6)(listed, right.result)
    if trained and alike:
        return
    short = ([float(f"{value:.5g}") for value in values] for values in (listed, right.result))
    seen, expected = diff_texts(*short, nearly(tolerance, 1e-4))
    if alike:
        seen, expected = (
            _("weights whose change is off by {off:.2g} of it").format(off=off),
            _("those of the given loop"),
        )
    if trained and any(listed) and all(map(rounded, listed, right.result)):
        judge.no("rounded", seen=f"{listed[0]:.7g}", expected=f"{right.result[0]:.7g}")
    for diagnosis, loop in known_mistakes.items():
        mistake = _cpu_run(letter, loop)
        if relative_error(mistake.moved, right.moved) <= tolerance:
            follows = trained and nearly(1e-3, 1e-6)(listed, mistake.result)
        else:
            follows = not trained and relative_error(got.moved, mistake.moved) <= max(1e-3, tolerance)
        if follows:
            judge.no(diagnosis, seen=seen, expected=expected)
    judge.no(seen=seen, expected=expected)


def _python_floats(result: Any, judge: Judge) -> list[float]:
    """Return the result as floats; refuse anything but a list of Python numbers."""
    values = result if isinstance(result, (list, tuple)) else [result]
    if any(isinstance(value, Tensor) for value in values):
        judge.no(seen=_("tensors in the place of numbers"), expected=_("Python numbers"))
    judge.is_a(result, (list, tuple), _("a list of Python numbers"))
    return [float(judge.is_a(v, numbers.Real, _("a list of Python numbers"))) for v in result]


def times(letter: str, got: Run) -> dict[str, str]:
    """Return the arguments ``seen`` and ``expected`` of ``judge.no`` about an answer's modelled time."""
    given = seconds(faulty_run(letter).seconds)
    return {
        "seen": _("{seconds} (modelled); the given loop takes {given}").format(
            seconds=seconds(got.seconds), given=given
        ),
        "expected": _("at most {limit}").format(limit=seconds(limit(letter))),
    }


def judge_waits(
    got: Run, judge: Judge, own: int = 0, few: int | None = None, diagnosis: str = "waits-each-step"
) -> None:
    """Refuse an answer that waits in each step, or more than ``few`` times in all.

    The first or the last step may do without a wait: its number is read before or after it. ``own`` waits are
    not counted as the answer's.
    """
    stood, steps = [0, *(step.waits for step in got.steps)], len(got.steps)
    waits = stood[-1] - own
    if waits > (max(1, steps - 2) if few is None else few):
        within = sum(b - a > own / steps for a, b in itertools.pairwise(stood))
        judge.no(
            diagnosis if within >= steps - 1 else "wrong-value",
            seen=_("{waits} waits in {within} of {steps} steps, copies to the device not counted").format(
                waits=waits, within=within, steps=steps
            ),
            expected=_("no wait before the last step is made"),
        )


def mend(
    letter: str,
    *,
    reference: Loop,
    known_mistakes: Mapping[str, Loop],
    judge_small: Callable[[Run, Judge], None] | None = None,
    judge_work: Callable[[Run, Judge], None],
    diagnoses: Mapping[str, str],
    **texts: Any,
) -> Exercise:
    """Return the exercise of repairing one of the loops.

    ``judge_small`` is called with the run at a small size, in which tensors have values; then ``judge_work``
    with the run in which times count.
    """

    def check(answer: Loop, judge: Judge) -> None:
        """Judge an answer."""
        if simgpu.unavailable_reason():
            print(_("Judged without the simulated device: the result, not the time."))
            judge_result(letter, detective.run_on_cpu(letter, answer), judge, known_mistakes)
            return
        small = detective.run(letter, answer, values=True, facts=False)
        early = any(copy.non_blocking and copy.code == "d2h" for copy in small.counters.copies)
        if early and not small.counters.synchronizations:
            judge.no(
                "too-early",
                seen=_("a copy that nobody waited for"),
                expected=_("a wait at the end"),
            )
        if small.changed:
            judge.no("changed-input", seen=_("other numbers in the batches"), expected=_("those given"))
        judge_result(letter, small, judge, known_mistakes)
        if judge_small:
            judge_small(small, judge)
        no_data = detective.CASES[letter].no_data
        judge_work(detective.run(letter, answer, facts=False) if no_data else small, judge)

    return Exercise(
        id=f"08.mend_{letter}",
        reference=reference,
        check_answer=check,
        diagnoses=diagnoses,
        may_change=True,
        **texts,
    )
