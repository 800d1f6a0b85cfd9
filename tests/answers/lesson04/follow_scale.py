"""Known right answers to 04.follow_scale, by a name."""

from __future__ import annotations

import math

import torch
from torch import nn


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


RIGHT = {"by the scaler itself": _by_the_scaler_itself}
