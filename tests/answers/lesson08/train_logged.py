"""Known answers to 08.train_logged: wrong ones by the diagnosis that each must get, and right ones."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lessons.lesson08.train_logged import LOSSES, RATES, STEPS


def _by_groups(model, batches, optimizer, every, clock, log):
    step, begin = 0, clock()
    for first in range(0, len(batches), every):
        losses, rows = [], []
        for x, y in batches[first : first + every]:
            losses.append(F.cross_entropy(model(x), y, reduction="sum"))
            rows.append(len(y))
            optimizer.zero_grad()
            (losses[-1] / len(y)).backward()
            optimizer.step()
            step += 1
        mean = float(torch.stack([loss.detach() for loss in losses]).sum()) / sum(rows)
        end = clock()
        log(step, mean, sum(rows) / (end - begin))
        begin = end


def _after_a_wait(model, batches, optimizer, every, clock, log):
    total, rows, begin = 0.0, 0, clock()
    for step, (x, y) in enumerate(batches):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = total + loss.detach() * y.shape[0]
        rows += y.shape[0]
        if (step + 1) % every and step + 1 < len(batches):
            continue
        if x.device.type != "cpu":
            torch.get_device_module(x.device).synchronize(x.device)
        end = clock()
        log(step + 1, total.item() / rows, rows / (end - begin))
        total, rows, begin = 0.0, 0, end


def _as_a_list(model, batches, optimizer, every, clock, log):
    losses, sizes, begin = [], [], clock()
    for step, (x, y) in enumerate(batches, 1):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        sizes.append(len(y))
        if step % every == 0 or step == len(batches):
            values = torch.stack(losses).cpu().numpy()
            seconds = clock() - begin
            log(step, np.average(values, weights=sizes), sum(sizes) / seconds)
            losses, sizes, begin = [], [], clock()


_MEAN = "mean = total.item() / samples\nnow = clock()"
_AS_SHIPPED = {
    "total += loss.detach() * len(y)": "",
    " or step == len(batches)": "",
    "total.item() / samples": "loss.item()",
    "total, samples, begin = 0, 0, now": "",
}
_LINE = "log(step, mean, samples / (now - begin))"
WRONG = {
    **LOSSES,
    **RATES,
    **STEPS,
    "waits-each-step": {"loss.detach()": "loss.item()", "total.item()": "total"},
    "waits-more": (_after_a_wait, {_LINE: f"loss.item()\n{_LINE}"}),
    "launch-rate": {_MEAN: "now = clock()\nmean = total.item() / samples"},
    "begins-elsewhere": {_MEAN: f"early = clock()\n{_MEAN}", "= 0, 0, now": "= 0, 0, early"},
    "no-tail": ({" or step == len(batches)": ""}, _AS_SHIPPED),
    "other-steps": {_LINE: ""},
    "other-loss": {"total.item()": "2 * total.item()"},
    "other-rate": {_LINE: "log(step, mean, 2 * samples / (now - begin))"},
    "other-weights": {"optimizer.step()": "if step < len(batches):\n    optimizer.step()"},
    "changed-input": {"loss.backward()": "loss.backward()\nx.zero_()"},
    "three-things": {_LINE: "log(step, mean)"},
    "tensor": {"log(step, mean,": "log(step, torch.tensor(mean),"},
}
RIGHT = {"groups": _by_groups, "read as a list": _as_a_list}
