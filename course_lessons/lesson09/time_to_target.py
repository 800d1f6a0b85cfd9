"""The runs that never got there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised


def time_to_target(runs, target):
    times = []
    for run in runs:
        reached = [seconds for seconds, accuracy in run if accuracy >= target]
        times.append(min(reached, default=math.inf))
    return statistics.median(times)


def only_survivors(runs, target):
    firsts = [[s for s, a in run if a >= target] for run in runs]
    return statistics.median([min(first) for first in firsts if first])


def _survivors(runs, target):
    try:
        return only_survivors(runs, target)
    except statistics.StatisticsError:
        return math.inf


TARGET_TWINS: dict[str, Callable[[Any, float], float]] = {
    "survivors": _survivors,
    "end-of-run": lambda runs, target: statistics.median(
        run[-1][0] if any(a >= target for _, a in run) else math.inf for run in runs
    ),
    "last-hit": lambda runs, target: statistics.median(
        max((s for s, a in run if a >= target), default=math.inf) for run in runs
    ),
    "when-best": lambda runs, target: statistics.median(
        max(run, key=lambda point: point[1])[0] if max(a for _, a in run) >= target else math.inf
        for run in runs
    ),
    "above-only": lambda runs, target: statistics.median(
        min((s for s, a in run if a > target), default=math.inf) for run in runs
    ),
    "best-run": lambda runs, target: min(
        min((s for s, a in run if a >= target), default=math.inf) for run in runs
    ),
    "mean": lambda runs, target: statistics.fmean(
        min((s for s, a in run if a >= target), default=math.inf) for run in runs
    ),
    "failures-at-the-end": lambda runs, target: statistics.median(
        min((s for s, a in run if a >= target), default=run[-1][0]) for run in runs
    ),
}


def _passing(begin: float) -> list[tuple[float, float]]:
    """Return a run that reaches 95 %, goes beyond, is at its best, has 95 % once more, and ends below."""
    return [(begin + i, a) for i, a in enumerate((0.60, 0.95, 0.96, 0.98, 0.95, 0.94))]


_RUNS = (
    [(1.0, 0.80), (2.0, 0.93), (3.0, 0.96), (4.0, 0.97)],
    [(1.5, 0.85), (2.5, 0.95), (3.5, 0.94), (4.5, 0.98)],
    [(1.1, 0.70), (2.1, 0.75), (3.1, 0.80), (4.1, 0.82)],
    [(0.9, 0.60), (1.9, 0.96), (2.9, 0.91)],
    [(2.0, 0.94), (4.0, 0.95), (7.0, 0.99), (9.0, 0.97)],
    [(1.2, 0.30), (2.4, 0.20)],
    [(5.0, 0.96)],
    *(_passing(begin) for begin in (3.0, 4.0, 6.0, 7.5)),
)


_TARGETS = (
    ((7, 2, 8, 10, 9), 0.95),
    ((0, 1, 2, 3, 4), 0.95),
    ((0, 1, 4), 0.96),
    (range(7), 0.94),
    ((6, 3), 0.96),
    ((2, 5, 0), 0.9),
    ((2, 5), 0.9),
)
"""The first case tells all known faults apart; in the last all fail, where a median of the others is an error."""


def _check_time_to_target(answer: Callable[..., Any], judge: Judge) -> None:
    cases = [([_RUNS[i] for i in chosen], target) for chosen, target in _TARGETS]
    right = [time_to_target(*case) for case in cases]
    got: list[float] = []
    for case in cases:
        try:
            found = answer(*case)
        except Raised:
            if not any(map(_differs, got, right)):
                raise
            break  # the earlier cases say more
        got.append(judge.is_a(found, (int, float), "a number, or math.inf"))
    for (runs, target), found, expected in zip(cases, got, right, strict=False):
        if _differs(found, expected):
            failed = sum(all(a < target for _, a in run) for run in runs)
            judge.no(
                _target_like(got, cases),
                seen=f"{found:g} s for {len(runs)} runs to {target:.0%}, of which {failed} never get there",
                expected=f"{expected:g} s",
            )


def _differs(found: float, expected: float) -> bool:
    return not math.isclose(found, expected, rel_tol=1e-6)


def _target_like(got: Sequence[float], cases: Sequence[tuple[Any, float]]) -> str:
    for name, twin in TARGET_TWINS.items():
        if not any(_differs(x, twin(*case)) for x, case in zip(got, cases, strict=False)):
            return name
    return "wrong-value"


EXERCISE = Exercise(
    id="09.time_to_target",
    title="The runs that never got there",
    level=2,
    minutes=8,
    task="""
Write `time_to_target(runs, target)`. Each run is a list of `(seconds, accuracy)`, one pair for each evaluation, in order of
time. A run has reached the target at its *first* evaluation with at least that accuracy. Return the median over **all** runs of
the seconds until then. A run that never gets there takes longer than any other: count it as
`math.inf`.
""",
    hints=(
        "What happens to the median if you leave the failures out? Would a recipe that fails nine times in ten then look bad?",
        "For one run: the least of the seconds whose accuracy is high enough. `min(…, default=math.inf)` also "
        "serves a run that has none.",
    ),
    reference=time_to_target,
    check_answer=_check_time_to_target,
    why="A time to a target is only worth something if the failures are in it. With a median they can be: half of all "
    "runs are there by then, or the answer is infinite, and says so.",
    diagnoses={
        "survivors": "The runs that failed were left out: the fewer get there, the better this looks.",
        "end-of-run": "That is when the run ended, not when it reached the target.",
        "last-hit": "That is the last evaluation with at least that accuracy. Stop at the first.",
        "when-best": "That is when the run was at its best. It had reached the target before.",
        "above-only": "*At least* the target: equal counts.",
        "best-run": "That is the fastest run. The next one will hardly be so lucky.",
        "mean": "That is the mean: one failure makes it infinite, one slow run moves it.",
        "failures-at-the-end": "A run that failed was counted as if it had got there at its end.",
    },
)
