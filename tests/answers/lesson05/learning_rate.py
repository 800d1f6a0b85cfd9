"""Known answers to 05.learning_rate that its check's twins are not."""

from __future__ import annotations

import torch


def _rates_by_min(step, base, base_batch, batch_per_rank, ranks, warmup):
    factor = batch_per_rank * ranks / base_batch
    done = min(step / warmup, 1) if warmup else 1
    return torch.tensor(base * (1 - done + done * factor), dtype=torch.float64)


RIGHT = {"by the smaller": _rates_by_min}
