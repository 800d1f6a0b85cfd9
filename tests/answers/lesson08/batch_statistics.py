"""Known wrong answers to 08.batch_statistics, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _statistics_by(
    weighted: bool = True, correction: int = 0, between: bool = True
) -> Callable[..., Any]:
    """Make an answer that takes the mean over the ranks' own means and variances, with a fault."""

    def batch_statistics(x, dist):
        share = x.new_full((1,), len(x))
        dist.all_reduce(share)
        rows = share.clone()
        share = len(x) / share if weighted else torch.full_like(share, 1 / dist.get_world_size())
        mean = x.mean(0) * share
        dist.all_reduce(mean)
        distance = (x - mean) if between else (x - x.mean(0))
        variance = distance.square().mean(0) * share
        dist.all_reduce(variance)
        return mean, variance * rows / (rows - correction)

    return batch_statistics


def _statistics_in_one_round(x, dist):
    sums = torch.stack([torch.ones_like(x), x, x * x]).sum(1)
    dist.all_reduce(sums)
    count, total, squares = sums
    mean = total / count
    return mean, squares / count - mean**2


def _statistics_of_one(x, dist):
    return x.mean(0), x.var(0, correction=0)


WRONG = {
    "own": _statistics_of_one,
    "mean-of-means": _statistics_by(weighted=False),
    "mean-of-variances": _statistics_by(between=False),
    "unbiased": _statistics_by(correction=1),
    "loses-digits": _statistics_in_one_round,
}
