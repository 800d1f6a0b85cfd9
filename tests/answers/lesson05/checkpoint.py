"""Known answers to 05.checkpoint: wrong ones by their diagnosis, right ones by a name."""

import copy

from course_lessons.lesson05.checkpoint import checkpoint

_MODEL, _SCALER = "model.state_dict()", "scaler.state_dict()"


def _of_copies(model, optimizer, scaler):
    parts = {"scaler": scaler, "model": model, "optimizer": optimizer}
    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}


def _without_moments(model, optimizer, scaler):
    state = checkpoint(model, optimizer, scaler)
    return {**state, "optimizer": {**state["optimizer"], "state": {}}}


def _clears(model, optimizer, scaler):
    """Return a right checkpoint, but clear the optimiser's own state."""
    state = _of_copies(model, optimizer, scaler)
    optimizer.state.clear()
    return state


WRONG = {
    "no-scaler": {f'"scaler": {_SCALER},': ""},
    "scale-only": ({_SCALER: "scaler.get_scale()"}, {_SCALER: '{"scale": scaler.get_scale()}'}),
    "not-plain": {_SCALER: "scaler"},
    "buffers": {_MODEL: "dict(model.named_parameters())"},
    "no-moments": _without_moments,
    "changed-input": (_clears, {"return {": "model.eval()\nreturn {"}),
}
RIGHT = {"of copies": _of_copies, "with more": lambda *parts: {**checkpoint(*parts), "step": 3}}
