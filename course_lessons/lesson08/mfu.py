"""Which share of the chip works for you."""

from course_language import _
from course_lessons.shared.checking import OrValueError
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.judge import Raised


def mfu(flops_per_step, seconds_per_step, peak):
    share = flops_per_step / (seconds_per_step * peak)
    if share > 1:
        raise ValueError(f"{share:.2f} of the peak: one of the three numbers is wrong")
    return share


class _Shares(OrValueError):
    """An `OrValueError` that refuses errors without a message, and other types for a share above 1."""

    def __call__(self, answer, judge):
        """Check the answer; ``judge.no`` where it is wrong."""
        silent = []

        def call(*case):
            try:
                return answer(*case)
            except Raised as raised:
                error = raised.error
                if isinstance(error, ValueError):
                    silent.append(not str(error).strip())
                elif case[0] / case[1] > case[2]:
                    judge.no(seen=f"{type(error).__name__}: {error}", expected="ValueError")
                raise

        super().__call__(call, judge)
        if any(silent):
            judge.no(seen=_("ValueError without a word"), expected=_("what is wrong"))


def _validated_result(judge, got):
    """Return the share as a float; refuse an exception that was returned and not raised."""
    if isinstance(got, BaseException):
        judge.no("returned", seen=_("{got!r} returned").format(got=got), expected=_("ValueError raised"))
    return judge.number(got)


_CASES = (
    *((8.1e11, 0.5, 8.1e12), (3e9, 1e-3, 6.5e13), (120, 3, 160), (1, 50, 5), (9e12, 1, 1e13)),
    *((7e12, 2, 1e13), (5e12, 0.5, 1e13), (4e9, 2, 2e9)),  # exactly 1
    *((2e13, 0.5, 3e13), (1.01e13, 1, 1e13), (9e12, 0.25, 2e13), (4e15, 2, 1e13)),
)
_SHARE, _TEST = "flops_per_step / (seconds_per_step * peak)", "if share > 1:"
_MISTAKES = {
    "inverted": {_SHARE: "seconds_per_step * peak / flops_per_step", _TEST: "if False:"},
    "no-time": {_SHARE: "flops_per_step / peak", _TEST: "if False:"},
    "three-times": {_SHARE: f"3 * {_SHARE}"},
    "cut": {_SHARE: f"min(1, {_SHARE})"},
}

EXERCISE = Exercise(
    id="08.mfu",
    title="Which share of the chip works for you",
    level=1,
    minutes=5,
    task="""
Write `mfu(flops_per_step, seconds_per_step, peak)`. It returns the FLOP/s of a training step as a share of
the peak FLOP/s. Here `peak` is what the chip can do at most, so if the share is above 1, one of the numbers
is wrong. Then raise a `ValueError` whose message says so.
""",
    hints=(
        "MFU compares two rates. `peak` is a rate already, but `flops_per_step` is an amount of work. What "
        "do you have to do to it before you can compare the two?",
        "Divide the work by its seconds, and you have the rate that the step reaches. Its share of the peak "
        "is one more division. Don't cut a share above 1 down to 1, because then nobody learns that a "
        "number is wrong. Raise an error instead, with a message that says what you found.",
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
    check_answer=_Shares(
        mfu,
        _CASES,
        known_mistakes_of(mfu, _MISTAKES),
        read=_validated_result,
        situation=lambda flops, time, peak: _(
            "{flops:.3g} FLOP in {time:g} s, peak {peak:.3g} FLOP/s"
        ).format(flops=flops, time=time, peak=peak),
    ),
    why="MFU compares a training with what the chip could do, whatever the model and the chip. A share "
    "above 1 is common in practice: often the peak is that of another number format.",
    diagnoses={
        "inverted": "That is the peak divided by the rate. For a share of the peak, divide by the peak.",
        "three-times": "The FLOP are counted three times. `flops_per_step` is the whole step already, with "
        "its backward pass.",
        "no-time": "The time of the step is missing. FLOP are compared with FLOP/s here.",
        "cut": "A rate above the peak gives 1 here. That hides the wrong number: refuse it.",
        "returned": "The error was returned. `raise` it, so that nobody goes on computing with it.",
    },
)
