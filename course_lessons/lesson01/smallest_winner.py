"""From which size on?"""

from __future__ import annotations

from typing import Any

from course_utils.exercises import Exercise, Judge


def smallest_winner(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        cpu = 2 * n**3 / cpu_flops
        transfers = 3 * 4 * n**2 / bus_bytes
        device = launch_seconds + transfers + 2 * n**3 / device_flops
        if device < cpu:
            return n
    return None


_SIZES = [2**k for k in range(4, 15)]


def winner(
    sizes: list[int], cpu: float, device: float, launch: float, bus: float, arrays: float
) -> int | None:
    def gain(n: int) -> float:
        return 2 * n**3 / cpu - (launch + arrays * 4 * n**2 / bus + 2 * n**3 / device)

    return next((n for n in sizes if gain(n) > 0), None)


def _check_smallest_winner(answer: Any, judge: Judge) -> None:
    doubt = None
    for sizes, cpu, device, launch, bus in (
        (_SIZES, 1e11, 1e13, 1e-5, 1e10),
        (_SIZES, 1e11, 1e13, 5e-3, 1e11),
        (_SIZES, 1e11, 1e13, 1e-6, 2e9),
        (_SIZES, 2e11, 1e11, 1e-5, 1e10),
        (_SIZES, 1e11, 4e11, 1e-9, 4e9),
        (_SIZES, 1e11, 1.5e11, 1e-9, 1e12),
        (_SIZES, 1e10, 1e13, 3e-7, 1e12),
        ([100, 200], 1e3, 2e3, 0.0, 120.0),  # a tie at 100
        ([100, 200, 300, 400, 500, 600], 1e11, 1e13, 1e-5, 1.6e10),
        ([1200, 1300, 1400, 1500, 1600, 1700], 1e11, 1e13, 1e-5, 5.3e9),
        ([30, 60, 90, 120, 150, 180], 1e11, 1e13, 5e-5, 1e12),
        (list(range(10, 400, 10)), 1e11, 1e12, 2e-5, 2e10),
        (list(range(10, 400, 10)), 1e11, 2e11, 1e-5, 1.5e10),
        (list(range(10, 1000, 10)), 5e10, 9e10, 1e-6, 3e9),
    ):
        got = answer(sizes, cpu, device, launch, bus)
        right = winner(sizes, cpu, device, launch, bus, 3)
        case = f"CPU {cpu:.3g} FLOP/s, device {device:.3g} FLOP/s, launch {launch:.3g} s, bus {bus:.3g} B/s"
        if right is None and got is not None:
            judge.no("no-winner", seen=f"{got} ({case})", expected="None")
        if right is None:
            continue
        if got is None:
            judge.no("none", seen=f"None ({case})", expected=right)
        judge.is_a(got, int, "one of the sizes")
        if got == right:
            continue
        given = {"seen": f"{got} ({case})", "expected": right}
        matches = [
            diagnosis
            for diagnosis, other in (
                ("tie", winner_or_tie(sizes, cpu, device, launch, bus)),
                ("no-transfers", winner(sizes, cpu, device, launch, 1e30, 3)),
                ("overlap", winner_overlapping(sizes, cpu, device, launch, bus)),
                ("one-way", winner(sizes, cpu, device, launch, bus, 2)),
                ("one-matrix", winner(sizes, cpu, device, launch, bus, 1)),
                ("no-launch", winner(sizes, cpu, device, 0.0, bus, 3)),
                ("not-bytes", winner(sizes, cpu, device, launch, bus * 4, 3)),
                ("largest", max(sizes)),
            )
            if got == other
        ]
        if len(matches) == 1:
            judge.no(matches[0], **given)
        if not matches:
            judge.no("other-size", **given)
        doubt = doubt or (matches[0], given)  # several errors give this size: ask the next case
    if doubt is not None:
        judge.no(doubt[0], **doubt[1])


def winner_or_tie(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        there = launch_seconds + 12 * n**2 / bus_bytes
        if there + 2 * n**3 / device_flops <= 2 * n**3 / cpu_flops:
            return n
    return None


def winner_overlapping(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        transfer, compute = 12 * n**2 / bus_bytes, 2 * n**3 / device_flops
        if launch_seconds + max(transfer, compute) < 2 * n**3 / cpu_flops:
            return n
    return None


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
    check_answer=_check_smallest_winner,
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
