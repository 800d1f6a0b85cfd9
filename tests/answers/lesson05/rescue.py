"""Known answers to 05.rescue."""

from __future__ import annotations

from collections import OrderedDict

from course_lessons.lesson05.rescue import rescue
from course_utils.exercises.edited import edited


def _rescue_everywhere(state, model):
    return {key.replace("module.", "").replace("_orig_mod.", ""): v for key, v in state.items()}


def _rescue_first_part(state, model):
    return {key.split(".", 1)[-1]: value for key, value in state.items()}


def _rescue_without_the_model(state, model):
    found = {}
    for key, value in state.items():
        while key.startswith(("module.", "_orig_mod.")):
            key = key.split(".", 1)[1]
        found[key] = value
    return found


def _rescue_refusing(state, model):
    found = _rescue_without_the_model(state, model)
    if set(found) != set(model.state_dict()):
        raise ValueError("another model")
    return found


def _rescue_in_place(state, model):
    found = rescue(state, model)
    state.clear()
    state.update(found)
    return state


def _rescue_by_position(state, model):
    wanted = model.state_dict()
    if len(state) != len(wanted):
        raise ValueError("another model")
    return dict(zip(wanted, state.values(), strict=True))


def _rescue_by_cutting(state, model):
    wanted = model.state_dict().keys()
    found = OrderedDict(state)
    while found.keys() != wanted:
        if not found or not all(key.startswith(("module.", "_orig_mod.")) for key in found):
            raise ValueError("another model")
        found = OrderedDict((key.partition(".")[2], value) for key, value in found.items())
    return found


def _rescue_key_by_key(state, model):
    for first in ("", "module.", "_orig_mod."):
        for second in ("", "module.", "_orig_mod."):
            found = {
                key.removeprefix(first).removeprefix(second): value for key, value in state.items()
            }
            if found.keys() == model.state_dict().keys():
                return found
    raise ValueError("another model")


def _rescue_one_layer(state, model):
    found = rescue(state, model)
    first = next(iter(found))
    return {key: found[first] for key in found}


def _rescue_by_the_first_key(state, model):
    wanted = model.state_dict().keys()
    for key in wanted:
        for first in state:
            prefix = first.removesuffix(key)
            known = ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")
            if prefix in known and {prefix + each for each in wanted} == set(state):
                return OrderedDict((each.removeprefix(prefix), state[each]) for each in state)
    raise ValueError("another model")


_SAME_KEYS = "{prefix + key for key in wanted} == set(state)"
_REFUSAL = 'raise ValueError("this checkpoint is of another model")'
WRONG = {
    "everywhere": _rescue_everywhere,
    "already-right": _rescue_first_part,
    "child-module": _rescue_without_the_model,
    "compiled": edited(
        rescue,
        {
            ', "_orig_mod.", "module._orig_mod.", "_orig_mod.module."': "",
            _REFUSAL: "return state",
        },
    ),
    "two-wrappers": edited(
        rescue, {', "module._orig_mod.", "_orig_mod.module."': "", _REFUSAL: "return state"}
    ),
    "copied": edited(rescue, {"key: state[prefix + key]": "key: state[prefix + key].clone()"}),
    "changed-input": _rescue_in_place,
    "other-tensors": (_rescue_by_position, _rescue_one_layer),
    "refused": _rescue_refusing,
    "not-refused": (
        edited(rescue, {_REFUSAL: "return state"}),
        edited(rescue, {_SAME_KEYS: "all(prefix + key in state for key in wanted)"}),
        _rescue_by_cutting,
        _rescue_key_by_key,
    ),
}
RIGHT = {"by the first key": _rescue_by_the_first_key}
