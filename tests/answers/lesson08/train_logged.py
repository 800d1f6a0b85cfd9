"""Known answers to 08.train_logged: wrong ones by the diagnosis that each must get, and right ones."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson08.train_logged import train_logged
from course_utils.exercises.edited import edited


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


_MEAN = "mean = total.item() / samples\nnow = clock()"
_AS_SHIPPED = edited(
    train_logged,
    {
        "total += loss.detach() * len(y)": "",
        " or step == len(batches)": "",
        "total.item() / samples": "loss.item()",
        "total, samples, begin = 0, 0, now": "",
    },
)
WRONG = {
    "waits-each-step": edited(
        train_logged, {"loss.detach()": "loss.item()", "total.item()": "total"}
    ),
    "launch-rate": edited(train_logged, {_MEAN: "now = clock()\nmean = total.item() / samples"}),
    "since-start": edited(train_logged, {"total, samples, begin = 0, 0, now": ""}),
    "mean-of-means": edited(
        train_logged,
        {
            "loss.detach() * len(y)": "loss.detach()",
            "total.item() / samples": "total.item() / ((step - 1) % every + 1)",
        },
    ),
    "no-tail": (edited(train_logged, {" or step == len(batches)": ""}), _AS_SHIPPED),
    "last-loss": edited(train_logged, {"total.item() / samples": "loss.item()"}),
    "tensor": edited(
        train_logged, {"log(step, mean,": "log(step, torch.tensor(mean),"}, torch=torch
    ),
}
RIGHT = {"groups": _by_groups, "after a wait": _after_a_wait}
