"""Name the regime."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from course_lessons.shared.profiling import Facts
from course_utils.exercises import Exercise, Judge


def regime(facts):
    if facts.busy >= 0.75:
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    if max(facts.loading, facts.waiting) < 0.2:
        return "launch"
    return "loader" if facts.loading >= facts.waiting else "synchronisation"


DEVICE, HOST = ("compute", "memory"), ("loader", "synchronisation", "launch")


def _facts(
    busy: float, loading: float, waiting: float, flop_share: float, byte_share: float
) -> Facts:
    return Facts(
        seconds=1e-3,
        busy=busy,
        loading=loading,
        waiting=waiting,
        flop_share=flop_share,
        byte_share=byte_share,
        kernels=40,
        kernel_seconds=busy * 1e-3 / 40,
    )


def _regime_cases() -> list[Facts]:
    """The plain ones first, those at a limit or with equal shares later: the first wrong one is shown."""
    busy = (0.95, 0.1, 0.5, 1.0, 0.8, 0.7, 0.76, 0.74, 0.75)
    host = ((0.5, 0.1), (0.1, 0.4), (0.0, 0.0), (0.3, 0.5), (0.5, 0.3), (0.22, 0.05), (0.15, 0.15))
    host += ((0.05, 0.19), (0.2, 0.05), (0.05, 0.2), (0.3, 0.3))
    shares = ((0.7, 0.3), (0.2, 0.6), (0.8, 0.9), (0.9, 0.8), (0.3, 0.1), (0.1, 0.3), (0.02, 0.05))
    shares += ((0.4, 0.4),)
    order = sorted(
        product(range(len(busy)), range(len(host)), range(len(shares))),
        key=lambda at: (max(at[0] - 4, at[1] - 4, at[2] - 3, 0), at),
    )
    return [_facts(busy[b], *host[h], *shares[s]) for b, h, s in order]


def _why(name: str, right: str, case: Facts) -> str:
    """The diagnosis: which of the task's rules this case breaks."""
    if right in DEVICE:
        if name in DEVICE:
            return "equal-device" if case.flop_share == case.byte_share else "larger-share"
        if case.busy == 0.75:
            return "at-least-busy"
        low = max(case.flop_share, case.byte_share) <= 0.3  # the higher ones came before
        return "low-shares" if low else "busy-first"
    if name in DEVICE:
        return "idle-device"
    if right == "launch":
        return "no-launch"
    if name == "launch":
        edge = max(case.loading, case.waiting) == 0.2
        return "at-least-host" if edge else "long-enough"
    return "equal-host" if case.loading == case.waiting else "longer"


def _check_regime(answer: Callable[..., Any], judge: Judge) -> None:
    for case in _regime_cases():
        name, right = judge.is_a(answer(case), str, "one of the five names"), regime(case)
        if name not in (*DEVICE, *HOST):
            judge.no("other-name", seen=repr(name), expected=", ".join((*HOST, *DEVICE[::-1])))
        if name != right:
            judge.no(
                _why(name, right, case),
                seen=f"{name} for busy {case.busy:g}, loading {case.loading:g}, waiting {case.waiting:g}, "
                f"FLOP/s {case.flop_share:g}, bytes/s {case.byte_share:g}",
                expected=right,
            )


EXERCISE = Exercise(
    id="07.regime",
    title="Name the regime",
    level=1,
    minutes=10,
    task="""
Write `regime(facts)`: one of `"loader"`, `"synchronisation"`, `"launch"`, `"memory"`, `"compute"`.
`facts` holds five shares, from 0 to 1:

- `facts.busy`: of the time, how much the device computes.
- `facts.loading`, `facts.waiting`: of the time, how much the host loads data, and waits for the device.
- `facts.flop_share`, `facts.byte_share`: of the device's best FLOP/s and best bytes/s, how much it reaches while it computes.

A device busy for at least 0.75 of the time sets the pace: the larger of the last two shares names what limits it, compute
where they are equal. Otherwise the host does. If it loads or waits for at least 0.2 of the time, the longer of the two
names the regime, loader where they are equal. Else it only launches.
""",
    hints=(
        "A host that waits for a device that is always busy loses nothing. So which question comes first?",
        "First ask for `facts.busy`. The five names then fall into two for a busy device and three for an idle one.",
        'Of the three, ask for `"launch"` first: neither `facts.loading` nor `facts.waiting` reaches 0.2.',
    ),
    reference=regime,
    check_answer=_check_regime,
    why="The order of the questions is the method. A busy device is made faster by less work or by cheaper work, an "
    "idle one by a host that feeds it better, and the wrong one of the two gains nothing. If both shares are low on a "
    "busy device, neither is the limit: the kernels are too small or too slow to fill it. Then go back to larger "
    "kernels, not to 16 bits.",
    diagnoses={
        "other-name": "The answer is none of the five names.",
        "busy-first": "The device is busy for at least 0.75 of the time here. Then it sets the pace, whatever the host does.",
        "at-least-busy": "**At least** 0.75 includes 0.75 itself: a device that is busy for so long sets the pace.",
        "low-shares": "A busy device sets the pace, even where both of its shares are low: the larger names the limit.",
        "larger-share": "The larger share names the limit: compute where the FLOP/s are nearer to the most, memory where "
        "the bytes/s are.",
        "equal-device": "Where the two shares of a busy device are equal, compute is the limit.",
        "idle-device": "The device is busy for less than 0.75 of the time here. What it reaches while it computes does "
        "not say why.",
        "no-launch": "Neither the loading nor the waiting reaches 0.2 of the time here. The host only launches.",
        "long-enough": "A share of the host's reaches 0.2 here, and one is enough: it does more than launch.",
        "at-least-host": "**At least** 0.2 includes 0.2 itself: so long a share is no launching.",
        "longer": "Of loading and waiting, the longer names the regime.",
        "equal-host": "Where loading and waiting are equally long, the loader is the limit.",
    },
)
