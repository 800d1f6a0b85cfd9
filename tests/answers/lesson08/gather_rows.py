"""Known wrong answers to 08.gather_rows, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson08.gather_rows import gather_rows


def _gather_as_is(rows, dist):
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return torch.cat(parts)


def _longest(rows, dist):
    longest = torch.tensor([len(rows)])
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    padded = rows.new_zeros(int(longest), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, padded)
    return parts


def _gather_with_padding(rows, dist):
    return torch.cat(_longest(rows, dist))


def _gather_shortest(rows, dist):
    shortest = torch.tensor([len(rows)])
    dist.all_reduce(shortest, dist.ReduceOp.MIN)
    return _gather_as_is(rows[: int(shortest)], dist)


def _gather_on_rank_0(rows, dist):
    parts = _longest(rows, dist)
    counts = [torch.zeros(1, dtype=torch.int64) for _ in parts]
    dist.all_gather(counts, torch.tensor([len(rows)]))
    if dist.get_rank():
        return None
    return torch.cat([part[: int(n)] for part, n in zip(parts, counts, strict=True)])


def _gather_if_any(rows, dist):
    return gather_rows(rows, dist) if len(rows) else rows


def _gather_reversed(rows, dist):
    return gather_rows(rows, dist).flip(0)


WRONG = {
    "unequal": _gather_as_is,
    "padding-left": _gather_with_padding,
    "rows-lost": _gather_shortest,
    "hang": _gather_if_any,
    "one-rank": _gather_on_rank_0,
    "other-rows": _gather_reversed,
}
