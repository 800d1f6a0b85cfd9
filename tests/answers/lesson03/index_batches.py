"""Known wrong answers to 03.index_batches, by the diagnosis that each must get."""

from __future__ import annotations

import torch


def _batches_global_seed(n, size, seed, epoch, start):
    torch.manual_seed(seed + epoch)
    return list(torch.randperm(n).split(size))[start:]


def _batches_same_each_epoch(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randperm(n, generator=generator).split(size))[start:]


def _batches_other_seed(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    return list(torch.randperm(n, generator=generator).split(size))[start:]


def _batches_start_in_samples(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    return list(torch.randperm(n, generator=generator)[start:].split(size))


def _batches_drop_last(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator)
    return list(order[: n // size * size].split(size))[start:]


WRONG = {
    "global-generator": _batches_global_seed,
    "same-each-epoch": _batches_same_each_epoch,
    "not-the-rest": _batches_start_in_samples,
    "not-each-once": _batches_drop_last,
    "other-seed": _batches_other_seed,
}
