"""Known answers to 06.shard."""

import math
import random

import numpy as np
import torch
from torch.utils.data import DistributedSampler

from course_lessons.lesson06.shard import shard


def _shard_in_order(n, rank, world_size, epoch, seed):
    """Return consecutive rows, without a shuffle."""
    length = math.ceil(n / world_size)
    return [(rank * length + i) % n for i in range(length)]


def _shard_cut_first(n, rank, world_size, epoch, seed):
    """Divide the rows first, and shuffle each rank's own: its rows are the same in every epoch."""
    rows = _shard_in_order(n, rank, world_size, epoch, seed)
    return [rows[i] for i in shard(len(rows), 0, 1, epoch, seed)]


def _shard_after_seeding_python(n, rank, world_size, epoch, seed):
    random.seed(seed + epoch)
    order = random.sample(range(n), n)
    return (order * world_size)[: math.ceil(n / world_size) * world_size][rank::world_size]


def _shard_by_sampler(n, rank, world_size, epoch, seed):
    sampler = DistributedSampler(range(n), world_size, rank, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


def _shard_by_numpy(n, rank, world_size, epoch, seed):
    order = np.random.default_rng([seed, epoch]).permutation(n)
    return list(np.resize(order, math.ceil(n / world_size) * world_size)[rank::world_size])


def _shard_in_blocks(n, rank, world_size, epoch, seed):
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(n, generator=generator)
    length = math.ceil(n / world_size)
    return order[torch.arange(rank * length, (rank + 1) * length) % n]


def _shard_by_random(n, rank, world_size, epoch, seed):
    order = list(range(n))
    random.Random(f"{seed} {epoch}").shuffle(order)
    while len(order) % world_size:
        order.append(order[len(order) % n])
    return tuple(order[rank::world_size])


WRONG = {
    "own-order": (
        {"seed + epoch": "seed + epoch + 100 * rank"},
        {"padded[rank::world_size]": "padded[rank : rank + length]"},
    ),
    "same-every-epoch": {"seed + epoch": "seed"},
    "same-rows": _shard_cut_first,
    "unequal": {"return padded": "return order"},
    "global-generator": (
        {"generator = torch.Generator()": "torch", ", generator=generator": ""},
        _shard_after_seeding_python,
    ),
    "wrong-value": {"seed + epoch": "seed + epoch % 3"},
}
RIGHT = {
    "of tensors": lambda *case: list(torch.tensor(shard(*case))),
    "by the sampler": _shard_by_sampler,
    "in blocks": _shard_in_blocks,
    "by random": _shard_by_random,
    "by NumPy": _shard_by_numpy,
    "as an array": lambda *case: np.array(_shard_by_numpy(*case)),
}
