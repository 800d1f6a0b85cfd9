"""Known answers to 04.checkpoint: wrong ones by the diagnosis that each must get, right ones by a name."""

from __future__ import annotations

import copy

from course_lessons.lesson04.checkpoint import checkpoint
from course_utils.exercises.edited import edited

_MODEL, _SCALER = "model.state_dict()", "scaler.state_dict()"


def _with(part, other):
    return edited(checkpoint, {part: other})


def _halves(model, optimizer, scaler):
    halves = {name: value.half() for name, value in model.state_dict().items()}
    return {**checkpoint(model, optimizer, scaler), "model": halves}


def _without_the_count(model, optimizer, scaler):
    state = checkpoint(model, optimizer, scaler)
    if state["scaler"]:
        state["scaler"]["_growth_tracker"] = 0
    return state


def _of_copies(model, optimizer, scaler):
    parts = {"scaler": scaler, "model": model, "optimizer": optimizer}
    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}


WRONG = {
    "no-scaler": (
        _with(f'"scaler": {_SCALER},', ""),
        lambda model, optimizer, scaler: {},
    ),
    "scale-only": (_with(_SCALER, "scaler.get_scale()"), _without_the_count),
    "none-for-disabled": _with(_SCALER, f"{_SCALER} or None"),
    "not-plain": _with(_SCALER, "scaler"),
    "model": _with(_MODEL, "dict(model.named_parameters())"),
    "half": (_halves, _with(_MODEL, "model.half().state_dict()")),
    "optimizer": _with("optimizer.state_dict()", "{}"),
}
RIGHT = {"of copies": _of_copies}
