"""Known wrong answers to 07.mend_e, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson07.mend_e import mend_e
from course_lessons.lesson07.mend_f import stepped


def _e_loss_only(model, batches, optimizer):
    losses = []
    for x, y in batches:
        output = model(x)
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = F.mse_loss(output, y)
        losses.append(stepped(loss, optimizer))
    return torch.stack(losses).tolist()


def _e_by_item(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        losses.append(stepped(loss, optimizer).item())
    return losses


def _e_one_layer(model, batches, optimizer):
    losses = []
    for x, y in batches:
        with torch.autocast(x.device.type, torch.bfloat16):
            first = model[0](x)
        losses.append(stepped(F.mse_loss(model[1:](first.float()), y), optimizer))
    return torch.stack(losses).tolist()


def _e_weights_in_16_bits(model, batches, optimizer):
    model.to(torch.bfloat16)
    losses = []
    for x, y in batches:
        loss = F.mse_loss(model(x.to(torch.bfloat16)), y.to(torch.bfloat16))
        losses.append(stepped(loss, optimizer).float())
    return torch.stack(losses).tolist()


def _e_without_steps(model, batches, optimizer):
    with torch.autocast(batches[0][0].device.type, torch.bfloat16):
        return [F.mse_loss(model(x), y).item() for x, y in batches]


def _e_half_the_rows(model, batches, optimizer):
    return mend_e(model, [(x[::4], y[::4]) for x, y in batches], optimizer)


WRONG = {
    "as-slow": _e_loss_only,
    "only-some": _e_one_layer,
    "weights-dtype": _e_weights_in_16_bits,
    "other-weights": _e_without_steps,
    "other-result": _e_half_the_rows,
    "waits-each-step": _e_by_item,
}
