"""Be the scaler."""

import operator

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


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


def _make_cases():
    """Return new cases; "x" in a pattern is a step that overflows."""
    return [
        ([sign == "x" for sign in pattern], init_scale, interval)
        for pattern, init_scale, interval in (
            (".....", 8.0, 2),
            ("x.xx", 1024.0, 3),
            ("..x..x...", 64.0, 3),
            (".x....x..x.....", 65536.0, 2),
            ("xxx", 2.0, 1),
            ("", 2.0, 1),
        )
    ]


def _random_case(rng):
    """Return a random case with up to 12 steps, a quarter of which overflow."""
    overflows = [rng.random() < 0.25 for _ in range(rng.randint(0, 12))]
    return overflows, 2.0 ** rng.randint(-2, 16), rng.randint(1, 4)


_COUNT, _DUE = "good = 0 if overflow else good + 1", "good == growth_interval"
_NO_RESTART = {"scale, good = scale * 2, 0": "scale = scale * 2"}
_MISTAKES = {
    "not-reset": {_COUNT: "good += not overflow"},
    "by-number": {_COUNT: "good += 1", _DUE: "good % growth_interval == 0", **_NO_RESTART},
    "grows-on": {_DUE: "good >= growth_interval", **_NO_RESTART},
    "before-the-step": {_COUNT: f"scales.append(scale)\n{_COUNT}", "scales.append(scale)": ""},
    "floor": {"scale = scale / 2": "scale = max(scale / 2, 1.0)"},
}


def _validated_result(judge, got):
    """Return the scales as a list of floats, or refuse the result."""
    return [judge.number(value) for value in judge.listed(got, _("a list of numbers"))]


EXERCISE = Exercise(
    id="05.follow_scale",
    title="Be the scaler",
    level=2,
    minutes=8,
    task="""
Write `follow_scale(overflows, init_scale, growth_interval)`: the list of a scaler's scales, one after
each step. `overflows` says for each step whether its gradients overflowed. After an overflow the scale is
halved. After `growth_interval` good steps **in a row** it is doubled, and the count starts again.
""",
    hints=(
        "Play the scaler with pencil and paper. Take the overflows `[False, False, True, False]` and an "
        "interval of 2. What do you have to remember from one step to the next, so that you know what to do?",
        "You need two numbers. One is the scale, and the other counts the good steps in a row. An overflow "
        "changes both of them, and so does a doubling. Note the scale at the end of each step, when it has "
        "changed already.",
        "Here's a learning rate that remembers things in the same way. It falls when the loss hasn't "
        "improved twice in a row:\n\n"
        """```python
rate, bad, best, rates = 0.1, 0, float("inf"), []
for loss in [3.0, 2.5, 2.6, 2.7, 2.4]:
    bad = 0 if loss < best else bad + 1
    best = min(best, loss)
    if bad == 2:
        rate, bad = rate / 10, 0
    rates.append(rate)  # at the end: [0.1, 0.1, 0.1, 0.01, 0.01]
```""",
    ),
    reference=follow_scale,
    check_answer=ComparesToReference(
        follow_scale,
        _make_cases,
        known_mistakes_of(follow_scale, _MISTAKES),
        read=_validated_result,
        draw=_random_case,
        alike=operator.eq,
    ),
    why="A scaler comes down fast, one halving a step, and climbs slowly: by default it waits for 2000 good "
    "steps before each doubling. A scale that only falls is a sign of values that are not finite at any "
    "scale.",
    diagnoses={
        "not-reset": "An overflow must set the count of good steps back to 0: they have to be in a row.",
        "by-number": "The scale grew at every multiple of the interval, whatever came between. Count good "
        "steps in a row.",
        "grows-on": "After a doubling the count starts again. Here the scale went on doubling with each "
        "step.",
        "before-the-step": "These are the scales that the steps were made with. The list is to "
        "hold the scale after each step.",
        "floor": "A scale has no lower limit: below 1 it is halved too.",
    },
)
