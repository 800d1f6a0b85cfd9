"""Which share of the chip works for you."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lessons.shared.edited import edited, twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases
from course_utils.exercises.judge import Raised


def mfu(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / (seconds_per_step * peak)
    if share > 1:
        raise ValueError(f"{share:.2f} of the peak: one of the three numbers is wrong")
    return share


_SHARE, _TEST = "flops_per_step / (seconds_per_step * peak)", "if share > 1:"


def with_share(formula: str) -> tuple[Callable[..., Any], ...]:
    """Return what refuses a share above 1, one above 100, and none."""
    tests = (_TEST, "if share > 100:", "if False:")
    return tuple(edited(mfu, {_SHARE: formula, _TEST: test}) for test in tests)


_MISTAKES = {
    "inverted": with_share("(seconds_per_step * peak) / flops_per_step"),
    "percent": with_share("100 * flops_per_step / (seconds_per_step * peak)"),
    "no-time": with_share("flops_per_step / peak"),
    "times-time": with_share("flops_per_step * seconds_per_step / peak"),
    "rate": with_share("flops_per_step / seconds_per_step"),
    "times-peak": with_share("flops_per_step / seconds_per_step * peak"),
    "three-times": with_share("3 * flops_per_step / (seconds_per_step * peak)"),
    "rounded": with_share("round(flops_per_step / (seconds_per_step * peak), 2)"),
    "whole": with_share("flops_per_step // (seconds_per_step * peak)"),
    "above-one": with_share(_SHARE)[1:],
    "cut": {_SHARE: f"min(1, {_SHARE})"},
    "exactly-one": {_TEST: "if share >= 1:"},
    "below-one": {_TEST: "if share < 1:"},
}
MFU_TWINS = twins_of(mfu, _MISTAKES)


def _situation(flops: float, time: float, peak: float) -> str:
    return f"{flops:.3g} FLOP in {time:g} s, peak {peak:.3g} FLOP/s"


def _outcome(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that gives the name of the error where there is one."""

    def outcome(*case: float) -> Any:
        try:
            return function(*case)
        except ValueError:
            return "ValueError"

    return outcome


def _read(judge: Judge, got: Any) -> Any:
    if isinstance(got, BaseException):
        judge.no("returned", seen=f"{got!r} returned", expected="ValueError raised")
    return got if isinstance(got, str) and got == "ValueError" else judge.number(got)


def _otherwise(got: Any, right: Any, *case: float) -> str:
    if right == "ValueError":
        return "above-one"
    return "refused" if got == "ValueError" else "other-share"


_SHARES = OverCases(
    _outcome(mfu),
    (
        *((8.1e11, 0.5, 8.1e12), (3e9, 1e-3, 6.5e13), (120, 3, 160), (1, 50, 5), (3, 100, 4)),
        (6e12, 1, 1e13),
        (9e12, 1, 1e13),
        *((7e12, 2, 1e13), (5e12, 0.5, 1e13), (4e9, 2, 2e9)),  # exactly 1
        *((2e13, 0.5, 3e13), (1.01e13, 1, 1e13), (9e12, 0.25, 2e13), (4e15, 2, 1e13)),
    ),
    {
        name: tuple(map(_outcome, twins if isinstance(twins, tuple) else (twins,)))
        for name, twins in MFU_TWINS.items()
    },
    read=_read,
    otherwise=_otherwise,
    situation=_situation,
)


def _check_mfu(answer: Callable[..., Any], judge: Judge) -> None:
    silent = []

    def outcome(*case: float) -> Any:
        try:
            return answer(*case)
        except Raised as raised:
            error = raised.error
            if isinstance(error, ValueError):
                silent.extend([1] * (not str(error).strip()))
                return "ValueError"
            if case[0] / case[1] <= case[2]:
                raise
            judge.no(
                "asserted" if isinstance(error, AssertionError) else "other-error",
                seen=f"{type(error).__name__}: {error}",
                expected="ValueError",
            )

    _SHARES(outcome, judge)
    if silent:
        judge.no("no-words", seen="ValueError without a word", expected="what is wrong")


EXERCISE = Exercise(
    id="07.mfu",
    title="Which share of the chip works for you",
    level=1,
    minutes=5,
    task="""
Write `mfu(flops_per_step, seconds_per_step, peak)`: the FLOP/s of a training step as a share of the peak FLOP/s.
Nothing exceeds a peak: where the share comes out above 1, one of the numbers is wrong, so raise `ValueError` and say so.
""",
    hints=(
        "Which rate does the step reach? FLOP are work, FLOP/s are work in a time.",
        "The rate is `flops_per_step / seconds_per_step`, and the share is that by `peak`.",
    ),
    reference=mfu,
    check_answer=_check_mfu,
    why="MFU compares a training with what the chip could do, whatever the model and the chip. A share above 1 is "
    "common in practice: often the peak is that of another number format.",
    diagnoses={
        "inverted": "That is the peak by the rate. A share of the peak has the peak below the line.",
        "percent": "That is in percent. The task asks for a share, from 0 to 1.",
        "no-time": "The time of the step is not in it. FLOP are compared with FLOP/s here.",
        "times-time": "The FLOP are multiplied by the time of the step. A rate is FLOP divided by time.",
        "rate": "That is the rate itself. The task asks which share of the peak it is.",
        "times-peak": "The rate is multiplied by the peak. A share is the rate divided by the peak.",
        "three-times": "The FLOP are counted three times. They are those of a whole step already, backward and all.",
        "rounded": "The share is rounded. A small one loses its digits.",
        "whole": "The whole number alone is kept. The share of a step is a part of 1.",
        "above-one": "A rate above the peak got an answer. It cannot be, so refuse it.",
        "cut": "A rate above the peak gives 1 here. That hides the wrong number: refuse it.",
        "exactly-one": "A share of exactly 1 was refused. It is the peak itself, and does not exceed it.",
        "below-one": "The shares below 1 are refused, and those above it are not.",
        "refused": "This share does not exceed 1, and got a `ValueError`.",
        "other-share": "That is not the rate of the step divided by the peak.",
        "asserted": "The task asks for a `ValueError`. An `assert` checks your own code, and `python -O` leaves it out.",
        "other-error": "The task asks for a `ValueError`: the value of an argument is wrong.",
        "returned": "The error was returned. `raise` it, so that nobody counts on with it.",
        "no-words": "The `ValueError` says nothing. Whoever reads it needs to know what is wrong.",
    },
)
