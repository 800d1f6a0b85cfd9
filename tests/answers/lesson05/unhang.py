"""Known wrong answers to 05.unhang, by the diagnosis that each must get."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from course_lessons.lesson05.unhang import unhang


def _unhang_given(model, batches, dist, log):
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


def _unhang_barrier_mended(model, batches, dist, log):
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


def _unhang_shortest(model, batches, dist, log):
    shortest = torch.tensor(len(batches))
    dist.all_reduce(shortest, dist.ReduceOp.MIN)
    return unhang(model, batches[: shortest.item()], dist, log)


def _unhang_own(model, batches, dist, log):
    with torch.no_grad():
        total = sum(F.cross_entropy(model(x), y).item() * len(x) for x, y in batches)
    mean = total / sum(len(x) for x, _ in batches)
    if dist.get_rank() == 0:
        log(mean)
    return mean


def _unhang_mean_of_means(model, batches, dist, log):
    with torch.no_grad():
        total = sum(F.cross_entropy(model(x), y, reduction="sum") for x, y in batches)
    mean = torch.as_tensor(total / max(sum(len(x) for x, _ in batches), 1))
    dist.all_reduce(mean)
    mean = (mean / dist.get_world_size()).item()
    if dist.get_rank() == 0:
        log(mean)
    return mean


def _unhang_logging_everywhere(model, batches, dist, log):
    mean = unhang(model, batches, dist, lambda mean: None)
    log(mean)
    return mean


def _unhang_silent(model, batches, dist, log):
    return unhang(model, batches, dist, lambda mean: None)


def _unhang_for_rank_0(model, batches, dist, log):
    mean = unhang(model, batches, dist, log)
    return mean if dist.get_rank() == 0 else None


WRONG = {
    "one-rank": _unhang_given,
    "unequal-loops": _unhang_barrier_mended,
    "rows-left-out": _unhang_shortest,
    "own-rows": _unhang_own,
    "mean-of-means": _unhang_mean_of_means,
    "all-log": _unhang_logging_everywhere,
    "no-log": _unhang_silent,
    "only-rank-0": _unhang_for_rank_0,
}
