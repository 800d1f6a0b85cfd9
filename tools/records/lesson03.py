"""Experiments of lesson 03: the loader beside the training step, and gradient accumulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from course_utils.this_machine import usable_cores
from tools.fidelity.convolutional import small_cnn
from tools.records.synthetic_images import SyntheticImages

from .experiments import Samples, Unsuitable, Work, experiment, grid

BATCH = 64


@experiment(
    sweep=grid(transform=("light", "heavy"), workers=(0, 2, 4)),
    quick=grid(transform=("light", "heavy"), workers=(0, 2)),
    seconds=15,
    longest=30.0,
    modelled=False,
)
def loader_epoch(device: torch.device, transform: str, workers: int) -> Work:
    """Train a small CNN on 1,024 synthetic images of 32 × 32, each transformed by the loader.

    Claimed: efficient loading makes training 20 to 40 % faster
    (seed "PyTorch GPU加速训练核心技术指南", part 8).
    Refuted by: a gain outside that range for either transform. The workers are there already when the
    time begins, as they are from the second epoch on.
    """
    if workers > usable_cores():
        raise Unsuitable(f"{workers} workers need {workers} cores, and there are {usable_cores()}")
    loader = DataLoader(
        SyntheticImages(transform),
        batch_size=BATCH,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type in ("cuda", "xpu"),
    )
    model = small_cnn().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def epoch() -> None:
        for images, labels in loader:
            x = images.to(device, non_blocking=images.is_pinned())
            y = labels.to(device, non_blocking=labels.is_pinned())
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()

    return epoch


def _gradient(model: nn.Module, batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the flattened gradient accumulated over batches, each mean loss divided by their number."""
    model.zero_grad()
    for x, y in batches:
        (cross_entropy(model(x), y) / len(batches)).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


CASES = grid(case=("equal batches", "smaller last batch", "batch norm"))


@experiment(sweep=CASES, quick=CASES, modelled=False)
def accumulation(device: torch.device, case: str) -> Mapping[str, Samples]:
    """Compare the gradient of four accumulated micro-batches with that of one batch four times as large.

    Claimed: accumulating over 4 steps has the effect of 4 times the batch (seed "第7章:GPU 训练与性能优化",
    exercise 4).
    Refuted by: gradients that differ by more than rounding. ``smaller last batch`` has micro-batches of
    64, 64, 64 and 8; ``batch norm`` has four of 64 and a BatchNorm layer.
    """
    sizes = (64, 64, 64, 8) if case == "smaller last batch" else (64, 64, 64, 64)
    norm = (nn.BatchNorm1d(64),) if case == "batch norm" else ()
    errors = []
    for seed in range(5):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(20, 64), *norm, nn.ReLU(), nn.Linear(64, 2)).to(device)
        x, y = torch.randn(sum(sizes), 20).to(device), torch.randint(2, (sum(sizes),)).to(device)
        parts = list(zip(x.split(sizes), y.split(sizes), strict=True))
        whole = _gradient(model, [(x, y)])
        errors.append((torch.dist(_gradient(model, parts), whole) / whole.norm()).item())
    return {"error as a fraction of the gradient": Samples(errors, "1")}
