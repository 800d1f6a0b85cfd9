"""Known answers to 08.gather_rows."""

from __future__ import annotations

import torch

from course_lessons.lesson08.gather_rows import gather_rows
from course_utils.exercises.edited import edited


def _as_is(rows, dist):
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return torch.cat(parts)


def _shortest(rows, dist):
    shortest = torch.tensor([len(rows)])
    dist.all_reduce(shortest, dist.ReduceOp.MIN)
    return _as_is(rows[: int(shortest)], dist)


def _by_longest(rows, dist):
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    counts[dist.get_rank()] = rows.size(0)
    dist.all_reduce(counts)
    padded = torch.zeros(int(counts.max()), *rows.shape[1:], dtype=rows.dtype)
    padded[: rows.size(0)] = rows
    parts = [torch.zeros_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:n] for part, n in zip(parts, counts.tolist(), strict=True)])


def _by_broadcast(rows, dist):
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64)
    counts[dist.get_rank()] = rows.size(0)
    dist.all_reduce(counts)
    parts = []
    for rank, n in enumerate(counts.tolist()):
        part = rows.clone() if rank == dist.get_rank() else rows.new_empty(n, *rows.shape[1:])
        dist.broadcast(part, rank)
        parts.append(part)
    return torch.cat(parts)


WRONG = {
    "unequal": _as_is,
    "padding-left": edited(gather_rows, {"part[: counts[rank]]": "part"}),
    "rows-lost": _shortest,
    "hang": lambda rows, dist: gather_rows(rows, dist) if len(rows) else rows,
    "one-rank": edited(
        gather_rows, {"return torch.cat": "return None if dist.get_rank() else torch.cat"}
    ),
    "other-rows": lambda rows, dist: gather_rows(rows, dist).flip(0),
    "other-form": lambda rows, dist: gather_rows(rows, dist).double(),
}
RIGHT = {"by the longest": _by_longest, "by broadcast": _by_broadcast}
