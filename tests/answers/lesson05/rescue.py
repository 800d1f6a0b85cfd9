"""Known answers to 05.rescue."""

from collections import OrderedDict

from course_lessons.lesson05.rescue import TWINS, rescue


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


def _rescue_loading(state, model):
    model.load_state_dict(rescue(state, model))


def _rescue_by_any_prefix(state, model):
    wanted = model.state_dict().keys()
    for key in state:
        prefix = key.removesuffix(next(iter(wanted)))
        if {prefix + each for each in wanted} == set(state):
            return {each: state[prefix + each] for each in wanted}
    raise ValueError("another model")


WRONG = {
    **TWINS,
    "copied": {"key: state[prefix + key]": "key: state[prefix + key].clone()"},
    "changed-input": _rescue_in_place,
    "other-tensors": (
        _rescue_by_position,
        _rescue_one_layer,
        {"state[prefix + key] for": "wanted[key] for"},
    ),
    "refused": {
        "== set(state)": "== set(state) and next(iter(state)).endswith(next(iter(wanted)))"
    },
    "twice": (*TWINS["twice"], _rescue_by_any_prefix, _rescue_by_cutting, _rescue_key_by_key),
    "not-refused": ({'raise ValueError("this checkpoint is of another model")': ""},),
    "other-error": {
        "if {prefix + key for key in wanted} == set(state)": "if next(iter(state)).startswith(prefix)"
    },
    "other-keys": {
        "{key: state[prefix + key] for key in wanted}": "{'a' + key: state[prefix + key] for key in wanted}"
    },
    "returned-nothing": _rescue_loading,
}
RIGHT = {"by the first key": _rescue_by_the_first_key}
