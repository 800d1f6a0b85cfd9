"""Experiments of lesson 05: what mixed precision gains in time and in memory, and what it costs.

Each builds a network and returns the function of one training step, which the runner times. ``precision`` is
one of `networks.PRECISIONS`. "Seed" stands before the title of a document whose claim is tested.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import mse_loss

from tools.fidelity.convolutional import wide_cnn

from .experiments import Parameters, Work, experiment
from .networks import (
    PRECISIONS,
    image_step,
    need_accelerator,
    need_precision,
    resnet50,
    text_step,
    training_step,
)


def _each(batches: tuple[int, ...], **fixed: bool) -> list[Parameters]:
    """Return parameters for every batch size and precision, smallest first."""
    return [
        {"batch": batch, "precision": precision, **fixed} for batch in batches for precision in PRECISIONS
    ]


@experiment(sweep=_each((64, 4096)), quick=_each((64,)))
def mlp_step(device: torch.device, batch: int, precision: str) -> Work:
    """Train the seed's network of three linear layers, 20 → 64 → 32 → 1, for one step of Adam.

    Claimed: mixed precision is 1.5 to 2 times as fast, shown on this network
    (seed "第7章:GPU 训练与性能优化", 7.4).
    Refuted by: a gain below 1.5 times on it.
    """
    need_precision(device, precision)
    layers = (nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    model = nn.Sequential(*layers).to(device)
    x, y = torch.randn(batch, 20).to(device), torch.rand(batch, 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return training_step(lambda: mse_loss(model(x), y), optimizer, device, precision)


@experiment(
    sweep=[p for b in (64, 512) for last in (False, True) for p in _each((b,), channels_last=last)],
    quick=[*_each((64,), channels_last=False), *_each((64,), channels_last=True)],
    seconds=5,
    longest=10.0,
)
def cnn_step(device: torch.device, batch: int, precision: str, channels_last: bool) -> Work:
    """Train four wide convolutions on synthetic images of 32 × 32 for one step of SGD.

    Claimed: mixed precision is 1.5 to 2 times as fast and needs about 40 % less memory (seed "第7章:GPU
    训练与性能优化", 7.6 and summary); 30 to 50 % faster (seed "PyTorch GPU加速训练核心技术指南", part 8).
    Refuted by: a gain outside those ranges at either batch size, in either memory layout.
    """
    return image_step(wide_cnn(), device, batch, 32, precision, channels_last)


@experiment(
    sweep=_each((4, 32, 128)),
    quick=[{"batch": 4, "precision": "fp32"}, {"batch": 4, "precision": "bf16"}],
    seconds=20,
    longest=30.0,
    needs=("torchvision",),
)
def resnet50_step(device: torch.device, batch: int, precision: str) -> Work:
    """Train ResNet-50 on synthetic images of 224 × 224 for one step of SGD.

    Claimed: mixed precision brings 1 hour down to 40 minutes, with 30 to 50 % less memory (seed "PyTorch
    GPU加速训练核心技术指南", part 6).
    Refuted by: a gain far from 1.5 times, or a saving outside that range, at every batch size.
    """
    return image_step(resnet50(), device, batch, 224, precision)


@experiment(sweep=_each((1, 8, 32)), quick=_each((1,)), seconds=30, longest=60.0, needs=("transformers",))
def bert_large_step(device: torch.device, batch: int, precision: str) -> Work:
    """Train BERT-large on synthetic texts of 128 tokens for one step of AdamW.

    Claimed: mixed precision brings 3 days down to 1.5, with 40 to 60 % less memory (seed "PyTorch
    GPU加速训练核心技术指南", part 6).
    Refuted by: a gain far from 2 times, or a saving outside that range, at every batch size.
    """
    need_accelerator(device, "BERT-large with AdamW takes 6 GB, and many seconds a step on a CPU")
    return text_step("large", device, batch, 128, precision)
