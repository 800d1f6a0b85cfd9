"""Known wrong answers to 03.index_batches, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson03.index_batches import index_batches
from course_utils.exercises.edited import edited


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


WRONG = {
    "global-generator": _batches_global_seed,
    "same-each-epoch": _batches_same_each_epoch,
    "not-the-rest": _batches_start_in_samples,
    "not-each-once": edited(
        index_batches,
        {"return list(order.split(size))": "return list(order[: n // size * size].split(size))"},
    ),
    "other-seed": _batches_other_seed,
}
