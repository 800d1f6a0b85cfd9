"""Known answers to 08.averaged."""

import copy


def _by_the_formula(states, decay):
    average = None
    for state in states:
        now = copy.deepcopy(state)
        now = {k: v.float() if v.is_floating_point() else v for k, v in now.items()}
        for k, v in now.items():
            if average and v.is_floating_point():
                now[k] = decay * average[k] + (1 - decay) * v
        average = now
    return average


def _into_the_model(states, decay):
    average = {}
    for state in states:
        for name, value in state.items():
            if name in average and value.is_floating_point():
                value.mul_(1 - decay).add_(decay * average[name])
            average[name] = value.float() if value.is_floating_point() else value.clone()
    return average


def _nothing_is_copied(states, decay):
    average = None
    for state in states:
        if average is None:
            average = dict(state)
            continue
        for k, v in state.items():
            average[k] = decay * average[k] + (1 - decay) * v if v.is_floating_point() else v
    return average


WRONG = {
    "live-counter": _nothing_is_copied,
    "float-counter": {"value.clone()": "value.float()"},
    "other-count": {"value.clone()": "value + 1"},
    "changes-states": _into_the_model,
    "other-names": {"average[name] = value.clone()": "continue"},
    "buffer": {"elif name in average": 'elif name in average and name != "running_mean"'},
    "wrong-average": {"1 - decay": "(1 - decay) / 2"},
}
RIGHT = {"by the formula": _by_the_formula}
