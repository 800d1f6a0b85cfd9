"""Known answers to 08.gather_rows."""

import torch

from course_lessons.lesson08.gather_rows import gather_rows
from course_lessons.shared.edited import edited


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


_PARTS = "[part[: counts[rank]] for rank, part in enumerate(parts)]"


_counted = edited(gather_rows, {f"torch.cat({_PARTS})": _PARTS})


def _in_turns(rows, dist):
    each = _counted(rows, dist)
    turns = [part[at : at + 1] for at in range(max(map(len, each))) for part in each]
    return torch.cat([rows[:0], *turns])


def _own_first(rows, dist):
    parts = _counted(rows, dist)
    return torch.cat([parts.pop(dist.get_rank()), *parts])


WRONG = {
    "unequal": _as_is,
    "hang": lambda rows, dist: gather_rows(rows, dist) if len(rows) else rows,
    "padding-left": {"part[: counts[rank]]": "part"},
    "own-count": {"counts[rank]]": "len(rows)]"},
    "zeros-lost": {
        f"return torch.cat({_PARTS})": "flat = torch.cat(parts)\n"
        "kept = flat != 0\n"
        "return flat[kept.flatten(1).any(1) if flat.dim() > 1 else kept]"
    },
    "other-end": {"part[: counts[rank]]": "part[len(part) - counts[rank] :]"},
    "reversed": lambda rows, dist: torch.cat(_counted(rows, dist)[::-1]),
    "by-length": lambda rows, dist: torch.cat(sorted(_counted(rows, dist), key=len)),
    "own-first": _own_first,
    "in-turns": _in_turns,
    "one-tensor": {"[torch.empty_like(padded) for _ in counts]": "[padded.clone()] * len(counts)"},
    "one-rank": (
        {"return torch.cat": "return rows if dist.get_rank() else torch.cat"},
        {"return torch.cat": "return None if dist.get_rank() else torch.cat"},
    ),
    "own-alone": lambda rows, dist: rows,
    "rows-too-many": {"part[: counts[rank]]": "part[: counts[rank] + 1]"},
    "rows-lost": _shortest,
    "other-rows": lambda rows, dist: gather_rows(rows, dist).flip(0),
    "other-dtype": lambda rows, dist: gather_rows(rows, dist).double(),
    "other-shape": lambda rows, dist: gather_rows(rows, dist)[:, None],
}
RIGHT = {"by the longest": _by_longest, "by broadcast": _by_broadcast}
