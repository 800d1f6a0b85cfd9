"""Known answers to 09.optimizer_steps."""

import numpy as np
import torch


def _by_counting(samples, batch_size, accumulate, epochs, drop_last=False):
    steps = 0
    for _ in range(epochs):
        sizes = [len(part) for part in torch.arange(samples).split(batch_size)]
        sizes = [size for size in sizes if size == batch_size or not drop_last]
        steps += len(range(0, len(sizes), accumulate))
    return steps


def _by_numpy(samples, batch_size, accumulate, epochs, drop_last=False):
    batches = (np.floor if drop_last else np.ceil)(samples / batch_size)
    return np.int64(epochs * np.ceil(batches / accumulate))


RIGHT = {"counting": _by_counting, "numpy": _by_numpy}
