"""Known wrong answers to 03.train_accumulated, by the diagnosis that each must get."""

import torch
from torch.nn import functional as F

from course_lessons.lesson03.train_accumulated import _TWINS
from course_lessons.shared.edited import edited


def _accumulate_by_k(model, batches, optimizer, k):
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(model(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()


def _accumulate_joined(model, batches, optimizer, k):
    for i in range(0, len(batches), k):
        x, y = (torch.cat(part) for part in zip(*batches[i : i + k], strict=True))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def _lower_rate(model, batches, optimizer, k):
    for group in optimizer.param_groups:
        group["lr"] /= k
    _TWINS["not-divided"][0](model, batches, optimizer, k)


def _scaled_at_the_end(model, batches, optimizer, k):
    optimizer.zero_grad()
    seen = 0
    for i, (x, y) in enumerate(batches, 1):
        F.cross_entropy(model(x), y, reduction="sum").backward()
        seen += len(y)
        if i % k == 0 or i == len(batches):
            for p in model.parameters():
                p.grad /= seen
            optimizer.step()
            optimizer.zero_grad()
            seen = 0


_LATE = {"enumerate(batches, 1)": "enumerate(batches)", "i == len(": "i + 1 == len("}
WRONG = {
    **_TWINS,
    "by-k": _accumulate_by_k,
    "eval-mode": {"optimizer.zero_grad()": "optimizer.zero_grad()\nmodel.eval()"},
    "not-by-count": {" / count": " / count**2"},
    "large-batch": _accumulate_joined,
    "all-graphs": {
        "optimizer.zero_grad()": "optimizer.zero_grad()\nloss = 0",
        "loss = F": "loss = loss + F",
        "    loss.backward()": "loss.backward()",
    },
    "other-groups": edited(_scaled_at_the_end, _LATE),
    "other-rate": _lower_rate,
    "steps": {"optimizer.step()": "optimizer.step()\noptimizer.step()"},
}
RIGHT = {"gradients scaled at the end": _scaled_at_the_end}
