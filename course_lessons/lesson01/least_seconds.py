"""Which limit binds?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases, near


def least_seconds(flops, bytes_moved, peak_flops, bandwidth):
    compute = flops / peak_flops
    memory = bytes_moved / bandwidth
    limit = "compute" if compute > memory else "memory"
    return max(compute, memory), limit


_CASES = (
    (2e12, 1e9, 1e13, 1e12),
    (1e9, 12e9, 1e13, 1e12),
    (3e6, 4e6, 2e11, 4e10),
    (8e9, 2e8, 2e11, 4e10),
    (5e11, 7e10, 8.1e12, 3.2e11),
    (0.0, 6e8, 1e13, 3e11),
)


def _read(judge: Judge, got: Any) -> tuple[float, Any]:
    judge.is_a(got, (tuple, list), "a pair: seconds and 'compute' or 'memory'")
    if len(got) != 2:
        judge.no("pair", seen=got, expected="two things: seconds, and the limit's name")
    return judge.number(got[0]), got[1]


def _alike(got: tuple[float, Any], right: tuple[float, Any]) -> bool:
    return near(got[0], right[0]) and right[1] in (None, got[1])


def _seconds(of: Callable[..., float]) -> Callable[..., tuple[float, None]]:
    """Return a twin with other seconds, whatever limit it names."""
    return lambda *case: (of(*case), None)


_TWINS = {
    "added": _seconds(lambda flops, moved, peak, bandwidth: flops / peak + moved / bandwidth),
    "easier-limit": _seconds(
        lambda flops, moved, peak, bandwidth: min(flops / peak, moved / bandwidth)
    ),
    "upside-down": _seconds(
        lambda flops, moved, peak, bandwidth: max(peak / max(flops, 1), bandwidth / moved)
    ),
    "other-limit": edited(least_seconds, {"compute > memory": "compute < memory"}),
}


EXERCISE = Exercise(
    id="01.least_seconds",
    title="Which limit binds?",
    task="A piece of work needs `flops` FLOPs (0 for a copy) and moves `bytes_moved` bytes. The device computes at "
    "most `peak_flops` FLOPs a second and moves at most `bandwidth` bytes a second, both at the same "
    "time. Return a pair: the least seconds it can take, and `'compute'` or `'memory'`, the limit that "
    "sets it.",
    level=2,
    minutes=8,
    hints=(
        "How long would the arithmetic alone take? How long the moving alone?",
        "They happen at the same time. Two people pack and carry boxes side by side: when is all done?",
    ),
    reference=least_seconds,
    check_answer=OverCases(least_seconds, _CASES, _TWINS, read=_read, alike=_alike),
    why="This is the roofline, written as a time. If a profile is far above this figure, something "
    "else is to blame: overhead, waiting, a bad memory pattern. Lesson 07 looks for it.",
    diagnoses={
        "added": "You added the two times. Fetching and computing overlap.",
        "easier-limit": "This is the limit that is easier to meet. The work is done when both are.",
        "upside-down": "Upside down: seconds are work divided by rate.",
        "other-limit": "The seconds are right, the name of the limit is not: the part that takes "
        "longer is the one that binds.",
        "pair": "Return two things: the seconds and the name of the limit.",
    },
)
