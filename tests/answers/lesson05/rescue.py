"""Known wrong answers to 05.rescue, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson05.rescue import rescue


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


def _rescue_module_only(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    return state


def _rescue_one_wrapper(state, model):
    wanted = model.state_dict()
    for prefix in ("", "module.", "_orig_mod."):
        if {prefix + key for key in wanted} == set(state):
            return {key: state[prefix + key] for key in wanted}
    return state


def _rescue_refusing(state, model):
    found = _rescue_without_the_model(state, model)
    if set(found) != set(model.state_dict()):
        raise ValueError("another model")
    return found


def _rescue_copied(state, model):
    return {key: value.clone() for key, value in rescue(state, model).items()}


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


def _rescue_unrefused(state, model):
    try:
        return rescue(state, model)
    except ValueError:
        return state


WRONG = {
    "everywhere": _rescue_everywhere,
    "already-right": _rescue_first_part,
    "child-module": _rescue_without_the_model,
    "compiled": _rescue_module_only,
    "two-wrappers": _rescue_one_wrapper,
    "copied": _rescue_copied,
    "changed-input": _rescue_in_place,
    "other-tensors": _rescue_by_position,
    "refused": _rescue_refusing,
    "not-refused": _rescue_unrefused,
}
