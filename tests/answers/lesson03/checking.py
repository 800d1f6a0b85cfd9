"""What wrong answers to several exercises share."""

from __future__ import annotations

import torch


def _batches_skip_before_shuffle(n, size, seed, epoch, start):
    generator = torch.Generator().manual_seed(seed + epoch)
    rest = torch.randperm(n - start * size if start else n, generator=generator)
    return list((rest + (n - len(rest))).split(size))
