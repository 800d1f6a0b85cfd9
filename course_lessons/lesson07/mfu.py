"""Which share of the chip works for you."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.judge import Raised


def mfu(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / (seconds_per_step * peak)
    if share > 1:
        raise ValueError(f"{share:.2f} of the peak: one of the three numbers is wrong")
    return share


_SHARE = "flops_per_step / (seconds_per_step * peak)"
MFU_MISTAKES = known_mistakes_of(
    mfu,
    {
        "inverted": {
            _SHARE: "seconds_per_step * peak / flops_per_step",
            "if share > 1:": "if False:",
        },
        "no-time": {_SHARE: "flops_per_step / peak", "if share > 1:": "if False:"},
        "three-times": {_SHARE: f"3 * {_SHARE}"},
        "cut": {_SHARE: f"min(1, {_SHARE})"},
    },
)


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


_SHARES = ComparesToReference(
    _outcome(mfu),
    (
        *((8.1e11, 0.5, 8.1e12), (3e9, 1e-3, 6.5e13), (120, 3, 160), (1, 50, 5), (3, 100, 4)),
        (6e12, 1, 1e13),
        (9e12, 1, 1e13),
        *((7e12, 2, 1e13), (5e12, 0.5, 1e13), (4e9, 2, 2e9)),  # exactly 1
        *((2e13, 0.5, 3e13), (1.01e13, 1, 1e13), (9e12, 0.25, 2e13), (4e15, 2, 1e13)),
    ),
    {name: _outcome(mistake) for name, mistake in MFU_MISTAKES.items()},
    read=_read,
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
            judge.no(seen=f"{type(error).__name__}: {error}", expected="ValueError")

    _SHARES(outcome, judge)
    if silent:
        judge.no(seen="ValueError without a word", expected="what is wrong")


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
        "MFU compares two rates. `peak` is a rate already, but `flops_per_step` is an amount of work. "
        "What do you have to do to it before you can compare the two?",
        "Divide the work by its seconds, and you have the rate that the step reaches. Its share of the "
        "peak is one more division. Don't cut a share above 1 down to 1, because then nobody learns that "
        "a number is wrong. Raise an error instead, with a message that says what you found.",
        "Here's a function that refuses numbers which can't be right. It says so in its message, and "
        "doesn't turn the result into 0.\n"
        """
```python
def charge_left(used, capacity):
    left = 1 - used / capacity
    if left < 0:
        raise ValueError(f"{left:.0%} left, so `used` or `capacity` is wrong")
    return left
print(charge_left(30, 40))  # 0.25
```""",
    ),
    reference=mfu,
    check_answer=_check_mfu,
    why="MFU compares a training with what the chip could do, whatever the model and the chip. A share above 1 is "
    "common in practice: often the peak is that of another number format.",
    diagnoses={
        "inverted": "That is the peak by the rate. A share of the peak has the peak below the line.",
        "three-times": "The FLOP are counted three times. They are those of a whole step already, backward and all.",
        "no-time": "The time of the step is not in it. FLOP are compared with FLOP/s here.",
        "cut": "A rate above the peak gives 1 here. That hides the wrong number: refuse it.",
        "returned": "The error was returned. `raise` it, so that nobody counts on with it.",
    },
)
