"""Batches of digits that the host takes some time to load."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from course_lessons.shared.traces import host_busy
from course_utils.data import Split

BATCH, LOADING = 1000, 2e-3
"""Digits in a batch, and the seconds that the host takes to load one."""


def batches(digits: Split, device: torch.device) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the training digits in batches, on the CPU: images and labels.

    The digits are in memory already. Before each batch the host is kept busy for `LOADING` seconds, as if it
    read and decoded files; for the simulated device it is virtual time.

    Parameters
    ----------
    digits
        As `course_utils.load_digits` returns them.
    device
        The device that trains. It is not where the batches are.
    """
    for x, y in zip(digits.train_x.split(BATCH), digits.train_y.split(BATCH), strict=True):
        host_busy(LOADING, device)
        yield x, y
