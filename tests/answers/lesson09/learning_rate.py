"""Known answers to 09.learning_rate."""

import numpy as np
import torch

from course_lessons.lesson09.learning_rate import learning_rate

_RISE, _FALL = "(step + 1) / warm", "(steps - step) / (steps - warm + 1)"
_RATE = f"peak * min({_RISE}, {_FALL})"


def _parts(rise=_RISE, fall=_FALL, more=""):
    return {_RATE: f"peak * (({rise}) if step < warm{more} else ({fall}))"}


WRONG = {
    "first-step-lost": (
        {"step + 1": "step", _FALL: "(steps - step) / (steps - warm + 1)"},
        {_RISE: "step / max(1, warm - 1)"},
        {_RISE: "(step + 1) // warm"},
    ),
    "last-step-lost": (
        {_FALL: "(steps - 1 - step) / max(1, steps - warm)"},
        {_FALL: "(steps - 1 - step) / (steps - warm + 1)"},
        {_FALL: "max(0, 1 - (step - warm + 1) / warm)"},
    ),
    "below-0": {_FALL: "1 - 2 * (step - warm + 1) / (steps - warm + 1)"},
    "above-peak": (
        {"min(": "max("},
        _parts(more=" + 1"),
        _parts(fall="(steps - step) / max(1, steps - warm - 1)"),
    ),
    "peak-twice": _parts(fall="(steps - step) / (steps - warm)"),
    "peak-elsewhere": {_RISE: "(step + 1) / (warm + 1)"},
    "stays-up": ({_FALL: "1"},),
    "no-warm-up": (
        {_RATE: "peak * (steps - step) / steps"},
        _parts(rise="1"),
        {"return": "warm = max(1, warm // 2)\nreturn"},
        lambda *case: case[2],
    ),
    "rise-begins": _parts(rise="(step + 2) / (warm + 1)"),
    "rise-uneven": {_RISE: "((step + 1) / warm) ** 2"},
    "cosine": _parts(fall="(1 + math.cos(math.pi * (step - warm + 1) / (steps - warm + 1))) / 2"),
    "fall-uneven": (
        _parts(fall="(steps - step) / steps"),
        _parts(fall="(steps - step) / (steps - warm + 2)"),
        _parts(fall="0.9 ** (step - warm + 1)"),
        _parts(fall="max(0.1, (steps - step) / (steps - warm + 1))"),
    ),
    "fall-ends": _parts(fall="1 - (step - warm + 1) / (steps - warm + 2)"),
    "share": {"peak * ": ""},
    "squared": {"peak * ": "peak**2 * "},
    "rounded": ({_RATE: f"round({_RATE}, 2)"}, {_RATE: f"round({_RATE}, 4)"}),
    "wrong-type": lambda *case: [learning_rate(step, *case[1:]) for step in range(case[1])],
}


def _rate_by_branches(step, steps, peak, warm):
    if step < warm:
        return peak / warm * (step + 1)
    return peak * (1 - (step - (warm - 1)) / (steps - (warm - 1)))


def _rate_by_adding(step, steps, peak, warm):
    return sum(peak / warm if s < warm else -peak / (steps - warm + 1) for s in range(step + 1))


RIGHT = {
    "by branches": _rate_by_branches,
    "by adding": _rate_by_adding,
    "by NumPy": lambda step, steps, peak, warm: np.interp(
        step, [-1, warm - 1, steps], [0, peak, 0]
    ).astype(np.float32),
    "as a tensor": lambda *case: torch.tensor(learning_rate(*case)),
}
