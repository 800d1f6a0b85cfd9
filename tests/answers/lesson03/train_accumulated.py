"""Known wrong answers to 03.train_accumulated, by the diagnosis that each must get."""

from torch.nn import functional as F

from course_lessons.lesson03.train_accumulated import _MISTAKES


def _accumulate_by_k(model, batches, optimizer, k):
    for i, (x, y) in enumerate(batches):
        (F.cross_entropy(model(x), y) / k).backward()
        if (i + 1) % k == 0 or i + 1 == len(batches):
            optimizer.step()
            optimizer.zero_grad()


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


WRONG = {
    **_MISTAKES,
    "by-k": _accumulate_by_k,
    "all-graphs": {
        "optimizer.zero_grad()": "optimizer.zero_grad()\nloss = 0",
        "loss = F": "loss = loss + F",
        "    loss.backward()": "loss.backward()",
    },
}
RIGHT = {"gradients scaled at the end": _scaled_at_the_end}
