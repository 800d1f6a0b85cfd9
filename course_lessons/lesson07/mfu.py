"""Which share of the chip works for you."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases
from course_utils.exercises.judge import Raised


def mfu(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / (seconds_per_step * peak)
    if share > 1:
        raise ValueError(f"{share:.2f} of the peak: one of the three numbers is wrong")
    return share


MFU_TWINS = {
    "inverted": lambda flops, time, peak: time * peak / flops,
    "percent": lambda flops, time, peak: 100 * flops / time / peak,
    "no-time": lambda flops, time, peak: flops / peak,
    "rate": lambda flops, time, peak: flops / time,
}


def _situation(flops: float, time: float, peak: float) -> str:
    return f"{flops:.3g} FLOP in {time:g} s, peak {peak:.3g} FLOP/s"


_SHARES = OverCases(
    mfu,
    ((8.1e11, 0.5, 8.1e12), (3e9, 1e-3, 6.5e13), (120, 3, 160), (5e12, 0.5, 1e13)),
    MFU_TWINS,
    situation=_situation,
)


def _check_mfu(answer: Callable[..., Any], judge: Judge) -> None:
    def not_refused(*case: float) -> Any:
        try:
            return answer(*case)
        except Raised as raised:
            if not isinstance(raised.error, (ValueError, AssertionError)):
                raise
            seen = f"{type(raised.error).__name__} for {_situation(*case)}"
            judge.no("refused", seen=seen, expected=f"{mfu(*case):.6g}")

    _SHARES(not_refused, judge)
    try:
        got = answer.__wrapped__(2e13, 0.5, 3e13)
    except ValueError as error:
        if not str(error).strip():
            judge.no("no-words", seen="ValueError without a word", expected="what is wrong")
        return
    except AssertionError as error:
        judge.no("asserted", seen=f"AssertionError: {error}", expected="ValueError")
    judge.no("above-one", seen=f"{got} for 4e13 FLOP/s on a device of 3e13", expected="ValueError")


EXERCISE = Exercise(
    id="07.mfu",
    title="Which share of the chip works for you",
    level=1,
    minutes=5,
    task="""
Write `mfu(flops_per_step, seconds_per_step, peak)`: the model FLOPs utilisation, which is the FLOP/s of a
training step as a share of the peak FLOP/s that the maker states. Nothing exceeds a peak: where the share comes out
above 1, one of the numbers is wrong, so raise `ValueError` and say so.
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
        "rate": "That is the rate itself. The task asks which share of the peak it is.",
        "above-one": "A rate above the peak got an answer. It cannot be, so refuse it.",
        "refused": "This share can be, and got no answer. Exactly 1 is the peak itself, and does not exceed it.",
        "asserted": "The task asks for a `ValueError`. An `assert` checks your own code, and `python -O` leaves it out.",
        "no-words": "The `ValueError` says nothing. Whoever reads it needs to know what is wrong.",
    },
)
