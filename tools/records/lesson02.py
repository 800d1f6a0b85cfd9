"""Experiments of lesson 02: what carrying a tensor to the device costs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from course_lessons.lesson02.transfers import journey, pin

from .experiments import Samples, Unsuitable, experiment, grid

SOURCES = ("pageable", "pinned", "pinned on the spot")


@experiment(
    sweep=grid(megabytes=(1, 64), source=SOURCES, non_blocking=(False, True)),
    quick=grid(megabytes=(64,), source=SOURCES, non_blocking=(False, True)),
)
def host_to_device(
    device: torch.device, megabytes: int, source: str, non_blocking: bool
) -> Mapping[str, Samples]:
    """Copy a float32 tensor to the device: time until the data are there, and until the call returns.

    Claimed: pinned memory and non-blocking copies are faster (seeds "PyTorch学习指南",
    "第7章:GPU 训练与性能优化", "PyTorch GPU加速训练核心技术指南"); by how much is not said.
    Refuted by: a copy from pinned memory that is there no sooner, or a non-blocking one that returns no
    sooner. ``pinned on the spot`` pins before each copy, and the pinning counts.
    """
    if device.type not in ("cuda", "xpu", "sim"):
        raise Unsuitable("pinned memory is for CUDA, ROCm and XPU")
    kept = torch.rand(megabytes * 2**18)
    if source == "pinned":
        kept = pin(kept, device)

    def carry() -> torch.Tensor:
        tensor = pin(kept, device) if source == "pinned on the spot" else kept
        return tensor.to(device, non_blocking=non_blocking)

    carry()
    returned, arrived = journey(carry, device, n=15)
    return {"time": Samples(arrived), "time until the call returns": Samples(returned)}
