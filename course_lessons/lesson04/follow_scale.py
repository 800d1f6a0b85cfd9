"""Be the scaler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited


def follow_scale(overflows, init_scale, growth_interval):
    scale, good, scales = init_scale, 0, []
    for overflow in overflows:
        good = 0 if overflow else good + 1
        if overflow:
            scale = scale / 2
        elif good == growth_interval:
            scale, good = scale * 2, 0
        scales.append(scale)
    return scales


def _check_follow_scale(answer: Callable[..., Any], judge: Judge) -> None:
    twins = {
        "not-reset": scale_not_reset,
        "by-number": scale_by_number,
        "grows-on": scale_grows_on,
        "before-the-step": scale_before,
        "one-late": scale_one_late,
        "back-to-start": scale_back_to_start,
        "floor": scale_with_floor,
    }
    for pattern, init_scale, interval in (
        (".....", 8.0, 2),
        ("x.xx", 1024.0, 3),
        ("..x..x...", 64.0, 3),
        (".........", 16.0, 3),
        (".x....x..x.....", 65536.0, 2),
        ("..x.", 4.0, 1),
        ("xxx", 2.0, 1),
        ("", 2.0, 1),
    ):
        overflows = [sign == "x" for sign in pattern]
        expected = follow_scale(overflows, init_scale, interval)
        got = judge.is_a(answer(overflows, init_scale, interval), list, "a list of numbers")
        numbers = [judge.number(value) for value in got]
        if numbers == expected:
            continue
        like = [name for name, f in twins.items() if numbers == f(overflows, init_scale, interval)]
        if len(numbers) != len(expected):
            like = ["one-per-step"]
        judge.no(
            like[0] if like else "wrong-scales",
            seen=f"{numbers} for overflows={overflows}, init_scale={init_scale:g}, "
            f"growth_interval={interval}",
            expected=expected,
        )


def scale_not_reset(overflows, init_scale, growth_interval):
    scale, good, scales = init_scale, 0, []
    for overflow in overflows:
        if overflow:
            scale = scale / 2
        else:
            good += 1
            if good == growth_interval:
                scale, good = scale * 2, 0
        scales.append(scale)
    return scales


def scale_by_number(overflows, init_scale, growth_interval):
    scale, scales = init_scale, []
    for number, overflow in enumerate(overflows, 1):
        if overflow:
            scale = scale / 2
        elif number % growth_interval == 0:
            scale = scale * 2
        scales.append(scale)
    return scales


scale_grows_on = edited(
    follow_scale,
    {
        ("elif good == growth_interval:\n    scale, good = scale * 2, 0"): (
            "elif good >= growth_interval:\n    scale = scale * 2"
        )
    },
)


def scale_before(overflows, init_scale, growth_interval):
    scales = follow_scale(overflows, init_scale, growth_interval)
    return [init_scale, *scales][: len(scales)]


def scale_one_late(overflows, init_scale, growth_interval):
    return follow_scale(overflows, init_scale, growth_interval + 1)


scale_back_to_start = edited(follow_scale, {"scale = scale / 2": "scale = init_scale"})


scale_with_floor = edited(follow_scale, {"scale = scale / 2": "scale = max(scale / 2, 1.0)"})


EXERCISE = Exercise(
    id="04.follow_scale",
    title="Be the scaler",
    level=2,
    minutes=8,
    task="""
Write `follow_scale(overflows, init_scale, growth_interval)`: the list of a scaler's scales, one after
each step. `overflows` says for each step whether its gradients overflowed. After an overflow the scale is
halved; after `growth_interval` good steps **in a row** it is doubled, and the count starts again.
""",
    hints=(
        "Two things are remembered from step to step: the scale, and the number of good steps in a row.",
        "Both events, an overflow and a doubling, set the count to 0.",
    ),
    reference=follow_scale,
    check_answer=_check_follow_scale,
    why="A scaler comes down fast, one halving a step, and climbs slowly: by default it waits for 2000 good "
    "steps before each doubling. A scale that only falls is a sign of values that are not finite at any scale.",
    diagnoses={
        "not-reset": "An overflow must set the count of good steps back to 0: they have to be in a row.",
        "by-number": "The scale grew at every multiple of the interval. Count good steps in a row, not "
        "steps.",
        "grows-on": "After a doubling the count starts again. Here the scale went on doubling with each step.",
        "before-the-step": "These are the scales that the steps were made with. The list is to "
        "hold the scale after each step.",
        "one-late": "The doubling comes with the last of `growth_interval` good steps, not one "
        "step later.",
        "back-to-start": "An overflow halves the present scale. It does not bring back the first one.",
        "floor": "A scale has no lower limit: below 1 it is halved too.",
        "one-per-step": "There must be one scale for each step.",
        "wrong-scales": "The scales are others.",
    },
)
