"""Known answers to 06.unhang."""

import torch
from torch.nn import functional as F

from course_lessons.shared.edited import edited


def unhang_as_given(model, batches, dist, log):
    """Run the lesson's faulty loop: all_reduce for each batch, and a barrier on rank 0 alone."""
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in batches:
            loss = F.cross_entropy(model(x), y, reduction="sum")
            part = torch.stack([loss, torch.tensor(float(len(x)))])
            dist.all_reduce(part)
            total += part
    mean = (total[0] / total[1]).item()
    if dist.get_rank() == 0:
        log(mean)
        dist.barrier()
    return mean


def _by_two_calls(model, batches, dist, log):
    model.eval()
    loss, rows = torch.zeros(()), torch.tensor(0)
    with torch.inference_mode():
        for x, y in batches:
            loss = loss + F.cross_entropy(model(x), y) * len(x)
            rows = rows + len(x)
    loss, rows = loss.clone(), rows.clone()
    dist.all_reduce(loss)
    dist.all_reduce(rows)
    dist.barrier()
    mean = loss.item() / rows.item()
    if not dist.get_rank():
        log(mean)
    return mean


def _by_most_batches(model, batches, dist, log):
    most = torch.tensor(len(batches))
    dist.all_reduce(most, dist.ReduceOp.MAX)
    total = torch.zeros(2)
    for i in range(most):
        part = torch.zeros(2)
        if i < len(batches):
            x, y = batches[i]
            with torch.no_grad():
                part[0] = F.cross_entropy(model(x), y, reduction="sum")
            part[1] = len(x)
        dist.all_reduce(part)
        total += part
    if dist.get_rank() == 0:
        log(total[0] / total[1])
    return (total[0] / total[1]).item()


WRONG = {
    "one-rank": unhang_as_given,
    "unequal-loops": edited(unhang_as_given, {"    dist.barrier()": "dist.barrier()"}),
    "returned-nothing": {"return mean": "return mean if dist.get_rank() == 0 else None"},
    "wrong-type": {"return mean": "return torch.tensor(mean)"},
    "wrong-value": {"log(mean)": "pass"},
}
RIGHT = {
    "with a graph": {"torch.no_grad()": "torch.enable_grad()", "[loss, ": "[loss.detach(), "},
    "by two calls": _by_two_calls,
    "by most batches": _by_most_batches,
}
