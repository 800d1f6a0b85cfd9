"""Known answers to 05.follow_scale: wrong ones by their diagnosis, right ones by a name."""

import math

import torch
from torch import nn

from course_lessons.lesson05.follow_scale import follow_scale


def _by_the_scaler_itself(overflows, init_scale, growth_interval):
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=init_scale, growth_interval=growth_interval)
    scales = []
    for overflow in overflows:
        optimizer.zero_grad()
        scaler.scale((weight * (math.inf if overflow else 1.0)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def _by_powers(overflows, init_scale, growth_interval):
    power, good, scales = 0, 0, ()
    for overflow in overflows:
        good = 0 if overflow else good + 1
        power += (good == growth_interval) - bool(overflow)
        good %= growth_interval
        scales += (init_scale * 2.0**power,)
    return scales


RIGHT = {
    "by the scaler itself": _by_the_scaler_itself,
    "by powers, a tuple": _by_powers,
    "a tensor": lambda *case: torch.tensor(follow_scale(*case)),
}
