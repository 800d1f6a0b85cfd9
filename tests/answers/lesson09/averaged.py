"""Known answers to 09.averaged."""

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


RIGHT = {"by the formula": _by_the_formula}
