"""Known answers to 09.train_logged."""

import numpy as np
import torch
from torch.nn import functional as F

from course_lessons.lesson09.train_logged import MISTAKES


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
WRONG = {
    **MISTAKES,
    "waits-each-step": {"loss.detach()": "loss.item()", "total.item()": "total"},
    "launch-rate": {_MEAN: "now = clock()\nmean = total.item() / samples"},
    "begins-elsewhere": {_MEAN: f"early = clock()\n{_MEAN}", "= 0, 0, now": "= 0, 0, early"},
    "changed-input": {"loss.backward()": "loss.backward()\nx.zero_()"},
}
RIGHT = {"groups": _by_groups, "read as a list": _as_a_list}
