"""Known answers to 06.rescue."""

from collections import OrderedDict

from course_lessons.lesson06.rescue import rescue


def _in_place(state, model):
    kept = rescue(state, model)
    state.clear()
    state.update(kept)
    return state


def _by_the_first_key(state, model):
    wanted = model.state_dict().keys()
    for key in wanted:
        for first in state:
            prefix = first.removesuffix(key)
            known = ("", "module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.")
            if prefix in known and {prefix + each for each in wanted} == set(state):
                return OrderedDict((each.removeprefix(prefix), state[each]) for each in state)
    raise ValueError("another model")


_FIVE = '"module._orig_mod.", "_orig_mod.module."'
WRONG = {
    "changed-input": _in_place,
    "wrong-value": (
        {_FIVE: f'{_FIVE}, "module.module.", "_orig_mod._orig_mod."'},
        {"state[prefix + key] for": "wanted[key] for"},
    ),
}
RIGHT = {"by the first key": _by_the_first_key}
