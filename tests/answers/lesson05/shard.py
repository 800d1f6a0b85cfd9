"""Known wrong answers to 05.shard, by the diagnosis that each must get."""

from __future__ import annotations

import math

import torch

from course_lessons.lesson05.shard import shard


def _shard_own_order(n, rank, world_size, epoch, seed):
    return shard(n, rank, world_size, epoch, seed + 100 * rank)


def _shard_same_every_epoch(n, rank, world_size, epoch, seed):
    return shard(n, rank, world_size, 0, seed)


def _shard_unequal(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    return torch.randperm(n, generator=generator).tolist()[rank::world_size]


def _shard_drops(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(seed + epoch)
    length = n // world_size
    return torch.randperm(n, generator=generator).tolist()[rank * length : (rank + 1) * length]


def _shard_global(n, rank, world_size, epoch, seed):
    torch.manual_seed(seed + epoch)
    order = torch.randperm(n).tolist()
    return (order * world_size)[: math.ceil(n / world_size) * world_size][rank::world_size]


def _shard_in_order(n, rank, world_size, epoch, seed):
    length = math.ceil(n / world_size)
    return [(rank * length + i) % n for i in range(length)]


def _shard_cut_first(n, rank, world_size, epoch, seed):
    rows = _shard_in_order(n, rank, world_size, epoch, seed)
    return [rows[i] for i in shard(len(rows), 0, 1, epoch, seed)]


def _shard_all(n, rank, world_size, epoch, seed):
    return shard(n, 0, 1, epoch, seed + rank)


WRONG = {
    "own-order": _shard_own_order,
    "same-every-epoch": _shard_same_every_epoch,
    "same-rows": _shard_cut_first,
    "unequal": _shard_unequal,
    "drops-rows": _shard_drops,
    "global-generator": _shard_global,
    "not-shuffled": _shard_in_order,
    "all-rows": _shard_all,
}
