"""Name the regime."""

from __future__ import annotations

import operator
from itertools import product
from typing import Any

from course_lessons.shared.profiling import Facts
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


def regime(facts):
    if facts.busy >= 0.75:
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    if max(facts.loading, facts.waiting) < 0.2:
        return "launch"
    return "loader" if facts.loading >= facts.waiting else "synchronisation"


REGIMES = ("loader", "synchronisation", "launch", "memory", "compute")


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
    shares = ((0.7, 0.3), (0.2, 0.6), (0.4, 0.4), (0.1, 0.3), (0.8, 0.9), (0.3, 0.1), (0.9, 0.8))
    host = ((0.0, 0.0), (0.5, 0.1), (0.1, 0.4), (0.3, 0.3), (0.2, 0.05), (0.05, 0.2), (0.15, 0.15))
    host += ((0.3, 0.5), (0.5, 0.3))
    busy = (0.1, 0.5, 0.74, 0.75, 0.95, 1.0)
    cases = [_facts(b, *h, *s) for b, h, s in product(busy, host, shares)]
    cases += [_facts(b, *h, 0.02, 0.01) for b, h in product(busy, host) if b < 0.75]
    cases += [_facts(0.85, 0.4, 0.1, 0.2, 0.5)]
    return [*cases, _facts(0.8, 0.0, 0.9, 0.5, 0.2), _facts(0.99, 0.85, 0.05, 0.1, 0.8)]


def _read(judge: Judge, name: Any) -> str:
    if judge.is_a(name, str, "one of the five names") not in REGIMES:
        judge.no("other-name", seen=repr(name), expected=", ".join(REGIMES))
    return name


def _situation(case: Facts) -> str:
    return (
        f"busy {case.busy:g}, loading {case.loading:g}, waiting {case.waiting:g}, "
        f"FLOP/s {case.flop_share:g}, bytes/s {case.byte_share:g}"
    )


def _otherwise(name: str, right: str, case: Facts) -> str:
    if {name, right} == {"compute", "memory"}:
        return "larger-share"
    if right in ("compute", "memory"):
        return "busy-first"
    if name in ("compute", "memory"):
        return "idle-device"
    return "host-side"


_BUSY = "facts.busy >= 0.75"
_TWINS = {
    "busy-first": (
        edited(regime, {_BUSY: f"{_BUSY} and max(facts.loading, facts.waiting) < 0.2"}),
        edited(regime, {_BUSY: "facts.busy >= 0.9"}),
        edited(regime, {_BUSY: "False"}),
    ),
    "larger-share": edited(regime, {"facts.flop_share >=": "facts.flop_share <"}),
    "idle-device": edited(
        regime, {_BUSY: f"{_BUSY} or max(facts.flop_share, facts.byte_share) >= 0.3"}
    ),
    "no-launch": edited(regime, {"max(facts.loading, facts.waiting) < 0.2": "False"}),
    "host-side": edited(regime, {"< 0.2": ">= 0.2"}),
    "at-least": (
        edited(regime, {"busy >= 0.75": "busy > 0.75", "< 0.2": "<= 0.2"}),
        edited(regime, {"busy >= 0.75": "busy > 0.75"}),
        edited(regime, {"< 0.2": "<= 0.2"}),
    ),
}


EXERCISE = Exercise(
    id="07.regime",
    title="Name the regime",
    level=2,
    minutes=10,
    task="""
Write `regime(facts)`: one of `"loader"`, `"synchronisation"`, `"launch"`, `"memory"`, `"compute"`.
`facts` is what `profiling.facts(work, device)` returns; all its shares are from 0 to 1:

- `facts.busy`: the share of the time in which the device computes.
- `facts.loading`, `facts.waiting`: the shares in which the host loads data, and waits for the device.
- `facts.flop_share`, `facts.byte_share`: while the device computes, its FLOP/s and its bytes/s as a share of the most that
  it reaches.

A device that is busy for at least 0.75 of the time sets the pace itself: the larger of the last two shares names
what limits it, compute where they are equal. Otherwise the host sets the pace. If it loads or waits for at least 0.2
of the time, the longer of the two names the regime, loader where they are equal. If it does neither, it only
launches.
""",
    hints=(
        "A host that waits for a device that is always busy loses nothing. So which question comes first?",
        "First ask for `facts.busy`. The five names then fall into two for a busy device and three for an idle one.",
        'Of the three, ask for `"launch"` first: neither `facts.loading` nor `facts.waiting` reaches 0.2.',
    ),
    reference=regime,
    check_answer=OverCases(
        regime,
        [(case,) for case in _regime_cases()],
        _TWINS,
        read=_read,
        alike=operator.eq,
        otherwise=_otherwise,
        situation=_situation,
    ),
    why="The order of the questions is the method. A busy device is made faster by less work or by cheaper work, an "
    "idle one by a host that feeds it better, and the wrong one of the two gains nothing. If both shares are low on a "
    "busy device, neither is the limit: the kernels are too small or too slow to fill it. Then go back to larger "
    "kernels, not to 16 bits.",
    diagnoses={
        "other-name": "The answer is none of the five names.",
        "busy-first": "The device is busy here. That the host waits for it, or loads meanwhile, costs nothing.",
        "larger-share": "Where the FLOP/s are nearer to their limit, compute is the limit. Where the bytes/s are, "
        "memory is. Equal shares count as compute.",
        "idle-device": "The device stands idle for a good part of the time here. What it reaches while it computes "
        "does not say why.",
        "at-least": "*At least* includes the number itself: a share of exactly 0.2 or 0.75 belongs to it.",
        "no-launch": "The host neither loads nor waits for long here. It is busy with launching.",
        "host-side": "For an idle device, compare what the host does: both shares with 0.2, then with each other.",
    },
)
