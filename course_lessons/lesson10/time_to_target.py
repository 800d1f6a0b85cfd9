"""The runs that never got there."""

import math
import statistics
from numbers import Real

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def time_to_target(runs, target):
    times = []
    for run in runs:
        reached = [seconds for seconds, accuracy in run if accuracy >= target]
        times.append(min(reached, default=math.inf))
    return statistics.median(times)


_FIRST, _MEDIAN = "min(reached, default=math.inf)", "statistics.median(times)"
_MISTAKES = {
    "survivors": {
        f"times.append({_FIRST})": "times += [min(reached)] if reached else []",
        _MEDIAN: "statistics.median(times or [math.inf])",
    },
    "failures-finite": {"=math.inf": "=run[-1][0]"},
    "not-first": (
        {"min(": "max("},
        {_FIRST: "max(run, key=lambda p: p[1])[0] if reached else math.inf"},
    ),
    "mean": {_MEDIAN: "statistics.fmean(times)"},
    "best-run": {_MEDIAN: "min(times)"},
}


def _passing_run(begin):
    """Return a run that reaches 95 %, rises further, falls to 95 % again, and ends below."""
    return [(begin + i, a) for i, a in enumerate((0.60, 0.95, 0.96, 0.98, 0.95, 0.94))]


_FAILING = [(1.1, 0.70), (2.1, 0.75), (3.1, 0.80), (4.1, 0.82)]
_CASES = [
    ([*map(_passing_run, (3.0, 4.0)), _FAILING, *map(_passing_run, (7.5, 6.0))], 0.95),
    ([*map(_passing_run, (3.0, 6.0)), _FAILING, [(1.2, 0.30), (2.4, 0.20)]], 0.96),
    ([_FAILING, [(1.2, 0.30), (2.4, 0.20)]], 0.9),
]
"""The first case tells many faults apart; in the last all fail, where a median of the others is an error."""


def _random_case(rng):
    """Return a random ``(runs, target)``: 1 to 6 runs of ``(seconds, accuracy)`` pairs.

    In about 30 % of the runs the accuracy never decreases; about 20 % are sure to miss the target.
    """
    runs = []
    for _ in range(rng.randrange(1, 7)):
        seconds = sorted({rng.randrange(3, 400) / 8 for _ in range(rng.randrange(1, 8))})
        best = 0.9 if rng.random() < 0.2 else 0.97
        accuracies = [round(best - rng.randrange(8) / 100, 2) for _ in seconds]
        accuracies = sorted(accuracies) if rng.random() < 0.3 else accuracies
        runs.append(list(zip(seconds, accuracies, strict=True)))
    return runs, rng.choice((0.93, 0.94, 0.95))


def _validated_result(judge, got):
    """Return the seconds as a float; refuse anything else than a number."""
    got = got.item() if hasattr(got, "numel") and got.numel() == 1 else got
    return float(judge.is_a(got, Real, _("a number, or math.inf")))


def _describe_case(runs, target):
    """Return the case in words."""
    failed = sum(all(a < target for _, a in run) for run in runs)
    return _("{n_runs} runs to {target:.0%}, of which {failed} never get there").format(
        n_runs=len(runs), target=target, failed=failed
    )


EXERCISE = Exercise(
    id="10.time_to_target",
    title="The runs that never got there",
    level=2,
    minutes=8,
    task="""
Write `time_to_target(runs, target)`. Each run is a list of `(seconds, accuracy)`, one pair for each
evaluation, in order of time. A run has reached the target at its *first* evaluation with at least that
accuracy. For each run, take the seconds until then. A run that never gets there takes longer than any other,
so count it as `math.inf`. Return the median over **all** runs.
""",
    hints=(
        "What happens to the median if you leave the failures out? A recipe that fails nine times in ten "
        "would look as good as its one lucky run.",
        "Take it in two steps. For one run, you want the smallest number of seconds among the evaluations "
        "whose accuracy is high enough. There may be none, and then `min` stops with an error, unless you "
        "give it a `default`. Which value is larger than any time? After that, take the median of as many "
        "numbers as there are runs.",
        "Here three children jump, and only jumps above 1 m count. A child without one gets 0, and stays "
        "in the median.\n"
        """
```python
import statistics
jumps = [[0.9, 1.2, 1.1], [0.7, 0.8], [1.3]]
best = [max((jump for jump in tries if jump > 1), default=0) for tries in jumps]
print(best, statistics.median(best))  # [1.2, 0, 1.3] 1.2
print(statistics.median([1.2, 1.3]))  # 1.25, too good
```""",
    ),
    reference=time_to_target,
    check_answer=ComparesToReference(
        time_to_target,
        _CASES,
        known_mistakes_of(time_to_target, _MISTAKES),
        read=_validated_result,
        draw=_random_case,
        situation=_describe_case,
        shown=lambda seconds: f"{seconds:g} s",
    ),
    why="A time to a target is only worth something if the failures are in it. A median can hold them, "
    "because either half of all the runs are there by then, or the answer is infinite and tells you so.",
    diagnoses={
        "survivors": "The runs that failed were left out: the fewer get there, the better this looks.",
        "failures-finite": "A run that failed was counted with a finite time. It takes longer than any "
        "other: count it as `math.inf`.",
        "not-first": "That's a later moment of a run than its first evaluation with at least the target. "
        "Stop at the first.",
        "mean": "That is the mean: one failure makes it infinite, one slow run moves it.",
        "best-run": "That is the fastest run. The next one will hardly be so lucky.",
    },
)
