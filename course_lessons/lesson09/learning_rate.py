"""Up, and down to nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases, near


def learning_rate(step, steps, peak, warm):
    return peak * min((step + 1) / warm, (steps - step) / (steps - warm + 1))


_CASES = ((10, 0.4, 3), (12, 0.1, 4), (8, 2.0, 1), (6, 0.3, 6), (1, 0.5, 1), (40, 0.03, 10))


def _draw(random: Random) -> tuple[int, float, int]:
    steps = random.randrange(2, 30)
    return steps, round(10 ** random.uniform(-3, 0.5), 4), random.randrange(1, steps + 1)


def _curve(rate: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Return what gives the rates of a whole training, which is what is judged."""
    return lambda steps, peak, warm: [rate(step, steps, peak, warm) for step in range(steps)]


def _straight(rates: Sequence[float]) -> bool:
    amounts = [after - before for before, after in itertools.pairwise(rates)]
    return all(math.isclose(amount, amounts[0], rel_tol=1e-4, abs_tol=1e-9) for amount in amounts)


def _what_is_seen(got: list[float], right: list[float], steps: int, peak: float, warm: int) -> str:
    """Return what a wrong curve has that the task rules out: each curve but the right one has something."""
    tops = [step for step, rate in enumerate(got) if near(rate, peak)]
    fall = [
        peak * (1 + math.cos(math.pi * (step - warm + 1) / (steps - warm + 1))) / 2
        for step in range(warm, steps)
    ]
    rise_fits = all(map(near, got[:warm], right[:warm]))
    for diagnosis, seen in (
        ("share", all(near(g * peak, r) for g, r in zip(got, right, strict=True))),
        ("squared", all(near(g, r * peak) for g, r in zip(got, right, strict=True))),
        (
            "rounded",
            any(all(g == round(r, n) for g, r in zip(got, right, strict=True)) for n in range(7)),
        ),
        ("first-step-lost", got[0] == 0),
        ("below-0", min(got) < -1e-9),
        ("above-peak", max(got) > peak * (1 + 1e-6)),
        ("last-step-lost", abs(got[-1]) < 1e-9),
        ("no-warm-up", warm > 1 and (got[1] < got[0] or near(got[0], peak))),
        ("stays-up", steps > warm and rise_fits and len(tops) == steps - warm + 1),
        ("peak-twice", len(tops) > 1),
        ("peak-elsewhere", tops != [warm - 1]),
        ("rise-begins", not rise_fits and _straight(got[:warm])),
        ("rise-uneven", not rise_fits),
        ("cosine", all(map(near, got[warm:], fall))),
        ("fall-uneven", not _straight(got[warm - 1 :])),
    ):
        if seen:
            return diagnosis
    return "fall-ends"


def _situation(steps: int, peak: float, warm: int) -> str:
    return f"the {steps} steps of a training (peak {peak:g}, {warm} to warm up)"


def _shown(rates: list[float]) -> str:
    texts = [f"{rate:.4g}" for rate in rates]
    return ", ".join(texts if len(texts) <= 12 else [*texts[:6], "…", *texts[-6:]])


_OVER_TRAININGS = OverCases(
    _curve(learning_rate),
    _CASES,
    {},
    read=lambda judge, got: [judge.number(rate) for rate in got],
    draw=_draw,
    alike=lambda got, right: all(map(near, got, right)),
    otherwise=_what_is_seen,
    situation=_situation,
    shown=_shown,
)


def _check_learning_rate(answer: Callable[..., Any], judge: Judge) -> None:
    _OVER_TRAININGS(_curve(answer), judge)


EXERCISE = Exercise(
    id="09.learning_rate",
    title="Up, and down to nothing",
    level=2,
    minutes=10,
    task="""
Write `learning_rate(step, steps, peak, warm)`: the rate of step `step`, counted from 0, in a training of `steps`
steps. It rises by equal amounts: it would be 0 just *before* the first step, and is `peak` in the last of the
`warm` steps of warm-up. Then it falls by equal amounts: it would be 0 just *after* the last step. No step has rate 0, and
only one has `peak`. `warm` lies between 1 and `steps`.
""",
    hints=(
        "Draw it for 10 steps of which 3 are warm-up. The three are 1/3, 2/3, 3/3 of the peak. How many equal amounts then lead "
        "from the peak to 0?",
        "The peak is step warm − 1, and 0 would be step `steps`: so it takes steps − warm + 1 amounts down. In step `step`, "
        "steps − step of them are still left.",
        "The rate is the smaller of two lines, times the peak.",
    ),
    reference=learning_rate,
    check_answer=_check_learning_rate,
    why="A high rate learns fast and rattles; a low one settles. Rising first, it does not throw the weights about while they "
    "are still random; falling to the end, it settles exactly when the time is up.",
    diagnoses={
        "first-step-lost": "The first step has rate 0: a step that is paid for and learns nothing.",
        "last-step-lost": "The last step has rate 0. It would be 0 only after it.",
        "below-0": "Some steps have a rate below 0: they walk uphill.",
        "above-peak": "Some steps have more than the peak.",
        "peak-twice": "More than one step has the peak. It is one step, the last of the warm-up, and the next one is "
        "lower already.",
        "peak-elsewhere": "The last step of the warm-up is to have the peak: step warm − 1, and no other.",
        "stays-up": "It never falls: the last steps rattle as much as the middle ones.",
        "no-warm-up": "The first steps do not rise. Each of the `warm` steps is higher than the one before, up to the last of them.",
        "rise-begins": "It rises by equal amounts up to the peak. But going on backwards, it is not 0 one step before the "
        "first.",
        "rise-uneven": "It does not rise by equal amounts.",
        "cosine": "That falls along a cosine, as OneCycleLR does by default. Equal amounts are asked for here.",
        "fall-uneven": "From the peak on it does not fall by equal amounts. The step from the peak down is one of them.",
        "fall-ends": "It falls by equal amounts from the peak. But going on, it is not 0 one step after the last.",
        "share": "That is the share of the peak, not the rate.",
        "squared": "You multiply by the peak twice.",
        "rounded": "You round the rates. In a long training neighbours then become equal.",
    },
)
