"""Known answers to 08.gather_rows."""

import torch

from course_lessons.lesson08.gather_rows import MISTAKES


def _as_is(rows, dist):
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows)
    return torch.cat(parts)


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
    **MISTAKES,
    "unequal": _as_is,
    "one-rank": {"return torch.cat": "return None if dist.get_rank() else torch.cat"},
}
RIGHT = {"by the longest": _by_longest, "by broadcast": _by_broadcast}
