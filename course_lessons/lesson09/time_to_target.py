"""The runs that never got there."""

from __future__ import annotations

import math
import numbers
import statistics
from random import Random
from typing import Any

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases


def time_to_target(runs, target):
    times = []
    for run in runs:
        reached = [seconds for seconds, accuracy in run if accuracy >= target]
        times.append(min(reached, default=math.inf))
    return statistics.median(times)


_FIRST = "min(reached, default=math.inf)"
_PAIRS = "for seconds, accuracy in run"
_REACHED = "reached[0] if reached else math.inf"
_OF_A_RUN = {
    "above-only": ({">=": ">"}, {">=": ">", "statistics.median": "statistics.fmean"}),
    "below-it": ({">=": "<="},),
    "swapped": ({_PAIRS: "for accuracy, seconds in run", _FIRST: _REACHED},),
    "accuracy": ({"[seconds": "[accuracy"}, {"[seconds": "[accuracy", _FIRST: _REACHED}),
    "number": ({f"[seconds {_PAIRS}": "[i for i, (_, accuracy) in enumerate(run)"},),
    "last-hit": (
        {"min(": "max("},
        {"min(": "max(", "median(times": "median_high(times"},
        {"min(": "max(", "statistics.median": "statistics.fmean"},
    ),
    "end-of-run": ({_FIRST: "run[-1][0] if reached else math.inf"},),
    "when-best": ({_FIRST: "max(run, key=lambda p: p[1])[0] if reached else math.inf"},),
    "first-alone": ({"in run if": "in run[:1] if"},),
    "end-alone": ({"in run if": "in run[-1:] if"},),
    "stays": ({"accuracy >= target": "min(a for s, a in run if s >= seconds) >= target"},),
    "neighbour": (
        {_FIRST: "min((s for s, _ in run if reached and s > reached[0]), default=math.inf)"},
    ),
    "before": (
        {_FIRST: "max((s for s, _ in run if reached and s < reached[0]), default=math.inf)"},
        {_FIRST: "next((p[0] for p, q in zip(run, run[1:]) if q[1] >= target), math.inf)"},
    ),
    "interval": ({_FIRST: "_since_the_one_before(run, target)[0]"},),
    "interpolated": ({_FIRST: "_since_the_one_before(run, target)[1]"},),
    "failures-at-the-end": ({"=math.inf": "=run[-1][0]"},),
    "failures-at-0": ({"=math.inf": "=0"},),
    "failures-finite": tuple({"=math.inf": f"={far}"} for far in ("1e9", "999", "9999", "1e6")),
    "survivors": tuple(
        {
            f"times.append({_FIRST})": "times += [min(reached)] if reached else []",
            "statistics.median(times)": f"{over}(times or [math.inf])",
            **more,
        }
        for over, more in (
            ("statistics.median", {}),
            ("statistics.median", {">=": ">"}),
            ("statistics.fmean", {}),
            ("statistics.median_low", {}),
            ("statistics.median_high", {}),
        )
    ),
}


def _since_the_one_before(run: list[tuple[float, float]], target: float) -> tuple[float, float]:
    """Return how long a run took for its last part, and where a line between two evaluations has the target."""
    before = (0.0, None)
    for seconds, accuracy in run:
        if accuracy >= target:
            took = seconds - before[0]
            if before[1] is None:
                return took, seconds
            return took, before[0] + took * (target - before[1]) / (accuracy - before[1])
        before = (seconds, accuracy)
    return math.inf, math.inf


_OVER_RUNS = {
    "mean": "statistics.fmean(times)",
    "lower-middle": "statistics.median_low(times)",
    "upper-middle": "statistics.median_high(times)",
    "best-run": "min(times)",
    "slowest-run": "max(times)",
    "unsorted": "times[len(times) // 2]",
    "sum": "sum(times)",
    "first-run": "times[0]",
    "rounded": "(lambda t: t if math.isinf(t) else round(t))(statistics.median(times))",
    "reaching": "float(sum(t < math.inf for t in times))",
}
_MEDIAN = "statistics.median(times)"
_MISTAKES = {
    **_OF_A_RUN,
    **{fault: {_MEDIAN: over} for fault, over in _OVER_RUNS.items()},
    "one-pot": {
        f"times.append({_FIRST})": "times += reached",
        _MEDIAN: "statistics.median(times or [math.inf])",
    },
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


_CASES = [
    ([_RUNS[i] for i in chosen], target)
    for chosen, target in (
        ((7, 2, 8, 10, 9), 0.95),
        ((0, 1, 2, 3, 4), 0.95),
        ((0, 1, 4), 0.96),
        (range(7), 0.94),
        ((6, 3), 0.96),
        ((2, 5, 0), 0.9),
        ((7, 8, 9), 0.95),
        ((2, 5), 0.9),
    )
]
"""The first case tells many faults apart; in the last all fail, where a median of the others is an error."""


def _runs(random: Random) -> list[list[tuple[float, float]]]:
    """Return runs of which some rise all the time, and some never get far."""
    runs = []
    for turn in range(60):
        seconds = sorted({random.randrange(3, 400) / 8 for _ in range(random.randrange(1, 8))})
        best = 0.9 if turn % 5 == 0 else 0.97
        accuracies = [round(best - random.randrange(8) / 100, 2) for _ in seconds]
        accuracies = sorted(accuracies) if turn % 3 == 0 else accuracies
        runs.append(list(zip(seconds, accuracies, strict=True)))
    return runs


_POOL = _runs(Random(9))


def _draw(random: Random) -> tuple[list[list[tuple[float, float]]], float]:
    return random.sample(_POOL, random.randrange(1, 7)), random.choice((0.93, 0.94, 0.95))


def _read(judge: Judge, got: Any) -> float:
    got = got.item() if hasattr(got, "numel") and got.numel() == 1 else got
    whole = isinstance(got, numbers.Real) and not isinstance(got, bool)  # NumPy's numbers too
    return float(got if whole else judge.is_a(got, (int, float), "a number, or math.inf"))


def _otherwise(got: float, right: float, *case: Any) -> str:
    if math.isinf(right):
        return "half-fail"
    if math.isinf(got) or math.isnan(got):
        return "not-half"
    return "too-early" if got < right else "too-late"


def _situation(runs: list[list[tuple[float, float]]], target: float) -> str:
    failed = sum(all(a < target for _, a in run) for run in runs)
    return f"{len(runs)} runs to {target:.0%}, of which {failed} never get there"


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
    check_answer=OverCases(
        time_to_target,
        _CASES,
        twins_of(time_to_target, _MISTAKES),
        read=_read,
        draw=_draw,
        otherwise=_otherwise,
        situation=_situation,
        shown=lambda seconds: f"{seconds:g} s",
    ),
    why="A time to a target is only worth something if the failures are in it. With a median they can be: half of all "
    "runs are there by then, or the answer is infinite, and says so.",
    diagnoses={
        "survivors": "The runs that failed were left out: the fewer get there, the better this looks.",
        "end-of-run": "That is when the run ended, not when it reached the target.",
        "last-hit": "That is the last evaluation with at least that accuracy. Stop at the first.",
        "when-best": "That is when the run was at its best. It had reached the target before.",
        "above-only": "**At least** the target: equal counts.",
        "below-it": "You take evaluations that are at the target, and those below it. Turn the comparison round.",
        "swapped": "In a pair the seconds come first, then the accuracy.",
        "accuracy": "You collect accuracies. The seconds are asked for.",
        "number": "You count the evaluations. The seconds are asked for.",
        "first-alone": "Of each run you look at the first evaluation alone. It may get there later.",
        "end-alone": "Of each run you look at the last evaluation alone. It may have got there before.",
        "stays": "You wait until the accuracy never falls below the target again. Its first time there counts.",
        "neighbour": "That is the evaluation after the one that reached the target.",
        "before": "That is the evaluation before the one that reached the target.",
        "interval": "You take the seconds since the evaluation before. All seconds of the run until then count.",
        "interpolated": "You draw a line between two evaluations. What counts is the evaluation itself.",
        "failures-at-the-end": "A run that failed was counted as if it had got there at its end.",
        "failures-at-0": "A run that failed was counted as if it had got there at once.",
        "failures-finite": "A run that failed was counted with a time of its own. It is to count as `math.inf`.",
        "mean": "That is the mean: one failure makes it infinite, one slow run moves it.",
        "lower-middle": "Of two middle times you take the lower. The median is half way between them.",
        "upper-middle": "Of two middle times you take the upper. The median is half way between them.",
        "best-run": "That is the fastest run. The next one will hardly be so lucky.",
        "slowest-run": "That is the slowest run. The median is asked for.",
        "unsorted": "That is the run in the middle of the list. The median is the middle of the times in their order.",
        "first-run": "That is the first run alone.",
        "rounded": "You round the seconds. Leave them as they are.",
        "reaching": "You count runs. The seconds are asked for.",
        "sum": "You add the times up. The median is asked for.",
        "one-pot": "You put the evaluations of all runs together. Each run counts once.",
        "half-fail": "Half of the runs never get there, so the median is infinite. Your result is not.",
        "not-half": "More than half of the runs get there, so the median is a number of seconds.",
        "too-early": "By this time fewer runs had got there than it takes for the median.",
        "too-late": "The median is earlier: more runs had got there by this time.",
    },
)
