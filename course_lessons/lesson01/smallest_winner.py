"""From which size on?"""

from __future__ import annotations

from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases
from course_utils.exercises.values import same


def smallest_winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        cpu = 2 * n**3 / cpu_flops
        transfers = 3 * 4 * n**2 / bus_bytes
        device = launch_seconds + transfers + 2 * n**3 / device_flops
        if device < cpu:
            return n
    return None


_SIZES = [2**k for k in range(4, 15)]

_CASES = (
    (_SIZES, 1e11, 1e13, 1e-5, 1e10),
    (_SIZES, 1e11, 1e13, 5e-3, 1e11),
    (_SIZES, 1e11, 1e13, 1e-6, 2e9),
    (_SIZES, 2e11, 1e11, 1e-5, 1e10),
    (_SIZES, 2e11, 2e11, 1e-5, 1e11),
    (_SIZES, 1e11, 4e11, 1e-9, 4e9),
    (_SIZES, 1e11, 1.5e11, 1e-9, 1e12),
    (_SIZES, 1e10, 1e13, 3e-7, 1e12),
    ([100, 200], 1e3, 2e3, 0.0, 120.0),  # a tie at 100
    ([30, 60, 90], 1e3, 3e3, 0.0, 300.0),  # a tie at 30
    ([100, 200, 300, 400, 500, 600], 1e11, 1e13, 1e-5, 1.6e10),
    ([1200, 1300, 1400, 1500, 1600, 1700], 1e11, 1e13, 1e-5, 5.3e9),
    ([30, 60, 90, 120, 150, 180], 1e11, 1e13, 5e-5, 1e12),
    (list(range(10, 400, 10)), 1e11, 1e12, 2e-5, 2e10),
    (list(range(10, 400, 10)), 1e11, 2e11, 1e-5, 1.5e10),
    (list(range(10, 1000, 10)), 5e10, 9e10, 1e-6, 3e9),
)

_TRANSFERS = "transfers = 3 * 4 * n**2 / bus_bytes"
_TWINS = {
    "tie": edited(smallest_winner, {"device < cpu": "device <= cpu"}),
    "no-transfers": (
        edited(smallest_winner, {_TRANSFERS: "transfers = 0"}),
        edited(smallest_winner, {_TRANSFERS: "transfers = 3 * 4 * n / bus_bytes"}),
    ),
    "overlap": edited(
        smallest_winner,
        {"transfers + 2 * n**3 / device_flops": "max(transfers, 2 * n**3 / device_flops)"},
    ),
    "one-way": edited(smallest_winner, {_TRANSFERS: "transfers = 2 * 4 * n**2 / bus_bytes"}),
    "one-matrix": edited(smallest_winner, {_TRANSFERS: "transfers = 4 * n**2 / bus_bytes"}),
    "no-launch": edited(smallest_winner, {"launch_seconds + transfers": "transfers"}),
    "not-bytes": edited(smallest_winner, {_TRANSFERS: "transfers = 3 * n**2 / bus_bytes"}),
    "no-winner": edited(smallest_winner, {"return None": "return sizes[-1]"}),
    "largest": edited(smallest_winner, {"return n": "return max(sizes)"}),
}


def _read(judge: Judge, got: Any) -> int | None:
    return None if got is None else judge.is_a(got, int, "one of the sizes")


def _otherwise(got: int | None, right: int | None, *case: Any) -> str:
    if right is None:
        return "no-winner"
    return "none" if got is None else "other-size"


def _situation(sizes: list[int], cpu: float, device: float, launch: float, bus: float) -> str:
    return f"CPU {cpu:.3g} FLOP/s, device {device:.3g} FLOP/s, launch {launch:.3g} s, bus {bus:.3g} B/s"


EXERCISE = Exercise(
    id="01.smallest_winner",
    title="From which size on?",
    task="An n × n float32 product takes 2·n³ FLOPs. The CPU does `cpu_flops` a second. The device "
    "does `device_flops` a second, but first pays `launch_seconds`, and all **three** matrices cross "
    "the bus, two going and one coming back, at `bus_bytes` bytes a second. Return the first of "
    "the rising `sizes` for which the device takes less time in all, or `None` if there is none.",
    level=3,
    minutes=12,
    hints=(
        "Write down two times for one n. The CPU's has one part; the device's has three.",
        "A float32 number takes 4 bytes, and a matrix has n² of them.",
        "The device takes `launch_seconds + 3 * 4 * n**2 / bus_bytes + 2 * n**3 / device_flops`. Loop "
        "over the sizes and return the first for which that is less.",
    ),
    reference=smallest_winner,
    check_answer=OverCases(
        smallest_winner,
        _CASES,
        _TWINS,
        read=_read,
        alike=same,
        otherwise=_otherwise,
        situation=_situation,
    ),
    why="Compute grows with n³, transfers with n², the launch not at all. So a large enough n wins, "
    "if the device computes faster, and the bus decides where that begins.",
    diagnoses={
        "no-transfers": "The transfers are missing or too small: two matrices of n² numbers have to get to "
        "the device, and the result has to come back.",
        "tie": "At this size both take the same time. Less means less.",
        "one-way": "Only two matrices cross your bus. The result comes back too.",
        "overlap": "You let the transfers overlap with the arithmetic. Here the three parts come one "
        "after the other.",
        "one-matrix": "Only one matrix crosses your bus: two go, and the result comes back.",
        "none": "You found no size, but there is one. Do you return None before all sizes were tried?",
        "no-launch": "The launch is missing: the device pays for it before it computes anything.",
        "not-bytes": "The bus is given in bytes a second, and a float32 number has more than one.",
        "largest": "This is a size at which the device wins, but a smaller one would do.",
        "no-winner": "Here the device never wins: then the answer is None.",
        "other-size": "Write down both times for this case, and compare them size by size.",
    },
)
