"""Known answers to 04.checkpoint: wrong ones by the diagnosis that each must get, right ones by a name."""

import copy

from course_lessons.lesson04.checkpoint import checkpoint

_MODEL, _SCALER = "model.state_dict()", "scaler.state_dict()"


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


def _disabled_left_out(model, optimizer, scaler):
    return {name: part for name, part in checkpoint(model, optimizer, scaler).items() if part}


def _without_moments(model, optimizer, scaler):
    state = checkpoint(model, optimizer, scaler)
    return {**state, "optimizer": {**state["optimizer"], "state": {}}}


def _clears(model, optimizer, scaler):
    state = _of_copies(model, optimizer, scaler)
    optimizer.state.clear()
    return state


_OPTIMIZER = "optimizer.state_dict()"
_NEW = "torch.amp.GradScaler('cpu').state_dict()"
WRONG = {
    "no-scaler": {f'"scaler": {_SCALER},': ""},
    "part-missing": ({f'"optimizer": {_OPTIMIZER},': ""}, lambda model, optimizer, scaler: {}),
    "other-keys": {'"model"': '"net"', '"scaler"': '"scale"'},
    "scale-only": ({_SCALER: "scaler.get_scale()"}, {_SCALER: '{"scale": scaler.get_scale()}'}),
    "no-count": _without_the_count,
    "other-scaler": {_SCALER: _NEW},
    "none-for-disabled": ({_SCALER: f"{_SCALER} or None"}, _disabled_left_out),
    "not-plain": {_SCALER: "scaler"},
    "not-called": {_MODEL: "model.state_dict"},
    "no-state": {_MODEL: "list(model.parameters())"},
    "buffers": {_MODEL: "dict(model.named_parameters())"},
    "half": (_halves, {_MODEL: "model.half().state_dict()"}),
    "no-moments": _without_moments,
    "changed-input": (_clears, {"return {": "model.eval()\nreturn {"}),
    "not-loadable": (
        {_MODEL: _OPTIMIZER},
        {_MODEL: '{f"module.{k}": v for k, v in model.state_dict().items()}'},
        {_OPTIMIZER: "{}"},
        {_SCALER: "vars(scaler)"},
    ),
    "other-model": {_MODEL: "{k: v * 1 + (v == v.max()) for k, v in model.state_dict().items()}"},
}
RIGHT = {"of copies": _of_copies, "with more": lambda *parts: {**checkpoint(*parts), "step": 3}}
