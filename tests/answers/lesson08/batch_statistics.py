"""Known answers to 08.batch_statistics."""

import torch

from course_lessons.lesson08.gather_rows import gather_rows


def _in_one_round(x, dist):
    sums = torch.stack([torch.ones_like(x), x, x * x]).sum(1)
    dist.all_reduce(sums)
    count, total, squares = sums
    mean = total / count
    return mean, squares / count - mean**2


def _in_double(x, dist):
    wide = x.double()
    sums = torch.stack([torch.ones_like(wide), wide, wide.square()]).sum(1)
    dist.all_reduce(sums)
    mean = sums[1] / sums[0]
    return mean.to(x), (sums[2] / sums[0] - mean**2).to(x)


def _by_gathering(x, dist):
    rows = gather_rows(x, dist)
    return [rows.mean(0), rows.var(0, unbiased=False)]


WRONG = {
    "own": lambda x, dist: (x.mean(0), x.var(0, correction=0)),
    "mean-of-means": {
        "mean = total / count": "mean = x.mean(0) / dist.get_world_size()\ndist.all_reduce(mean)"
    },
    "mean-of-variances": {"(x - mean)": "(x - x.mean(0))"},
    "equal-shares": {
        "count, total = sums": "count, total = len(x) * dist.get_world_size(), sums[1]"
    },
    "not-divided": ({"total / count": "total"}, {"squares / count": "squares"}),
    "by-own-rows": {"squares / count": "squares / len(x)"},
    "by-ranks": {"total / count": "total / dist.get_world_size()"},
    "exchanged": {"mean, squares / count": "squares / count, mean"},
    "sum-of-variances": {
        "(x - mean).square().sum(0)": "x.var(0, correction=0)",
        "squares / count": "squares",
    },
    "own-squares": {"dist.all_reduce(squares)": ""},
    "root": {"squares / count": "(squares / count).sqrt()"},
    "no-mean": {"(x - mean).square()": "x.square()"},
    "other-shape": {"mean, squares / count": "mean.mean(), squares / count"},
    "wrong-mean": {"return mean,": "return mean + 1,"},
    "wrong-variance": {"squares / count": "squares / count + 1"},
    "some-ranks": {"squares / count": "squares / count + dist.get_rank()"},
    "hang": {"dist.all_reduce(squares)": "dist.get_rank() or dist.all_reduce(squares)"},
    "mismatch": {"dist.all_reduce(sums)": "dist.all_reduce(sums[: 1 + dist.get_rank()])"},
    "unbiased": {"squares / count": "squares / (count - 1)"},
    "loses-digits": _in_one_round,
}
RIGHT = {"in double": _in_double, "by gathering": _by_gathering}
