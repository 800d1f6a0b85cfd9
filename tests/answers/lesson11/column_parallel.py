"""Known answers to 11.column_parallel."""

import torch
from torch.nn import functional as F

from course_lessons.lesson11.column_parallel import column_parallel


def _whole(x, weight, bias, dist):
    """Compute the whole layer on each rank."""
    return F.linear(x, weight, bias)


def _gathers_on_one(x, weight, bias, dist):
    """Gather on rank 0 only."""
    if dist.get_rank() == 0:
        return column_parallel(x, weight, bias, dist)
    return F.linear(x, weight.chunk(2)[1], bias.chunk(2)[1])


def _by_sums(x, weight, bias, dist):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    n = len(weight) // ranks
    out = torch.zeros(*x.shape[:-1], len(weight))
    mine = slice(rank * n, (rank + 1) * n)
    out[..., mine] = x @ weight[mine].T + bias[mine]
    dist.all_reduce(out)
    return out


def _gathers_weights(x, weight, bias, dist):
    """Gather weights in place of outputs."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = []
    for own in (weight.chunk(ranks)[rank].clone(), bias.chunk(ranks)[rank].clone()):
        parts = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(parts, own)
        whole.append(torch.cat(parts))
    return F.linear(x, *whole)


_CAT = "torch.cat(parts, dim=-1)"
WRONG = {
    "not-gathered": {_CAT: "own"},
    "wrong-way": ({_CAT: "torch.cat(parts)"}, {_CAT: "torch.cat(parts, dim=1)"}),
    "one-rank": _gathers_on_one,
    "sends-weights": _gathers_weights,
    "whole-layer": _whole,
    "wrong-value": (
        {_CAT: "torch.cat(parts[::-1], dim=-1)"},
        {"weight.chunk(ranks)[rank]": "weight.chunk(ranks)[0]"},
    ),
}
RIGHT = {
    "by sums": _by_sums,
    "by einsum": {
        "F.linear(x, weight.chunk(ranks)[rank], bias": 'torch.einsum("...i,oi->...o", x, '
        "weight.chunk(ranks)[rank]) + (bias"
    },
}
