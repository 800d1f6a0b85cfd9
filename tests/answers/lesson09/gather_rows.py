"""Known answers to 09.gather_rows."""

import torch


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


WRONG = {
    "unequal": _as_is,
    "one-rank": {"return torch.cat": "return None if dist.get_rank() else torch.cat"},
}
RIGHT = {"by the longest": _by_longest}
