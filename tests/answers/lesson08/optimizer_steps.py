"""Known right answers to 08.optimizer_steps; the wrong ones are the twins of its check."""

from __future__ import annotations

import torch


def _by_counting(samples, batch_size, accumulate, epochs, drop_last=False):
    steps = 0
    for _ in range(epochs):
        sizes = [len(part) for part in torch.arange(samples).split(batch_size)]
        sizes = [size for size in sizes if size == batch_size or not drop_last]
        steps += len(range(0, len(sizes), accumulate))
    return steps


RIGHT = {"counting": _by_counting}
