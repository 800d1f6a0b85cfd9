"""Preparation of lesson 10's images, and a model's accuracy on them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def shaped(images: Tensor) -> Tensor:
    """Reshape images of bytes, (n, 28, 28) or (n, 32, 32, 3), to (n, 3, 32, 32)."""
    if images.ndim == 4:
        return images.permute(0, 3, 1, 2).contiguous()
    return F.pad(images, (2, 2, 2, 2))[:, None].repeat(1, 3, 1, 1)


def normal(images: Tensor, mean: float, std: float) -> Tensor:
    """Convert bytes to float and standardise them with ``mean`` and ``std``."""
    return (images.float() / 255 - mean) / std


def accuracy(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    prepare: Callable[[Tensor], Tensor],
    device: torch.device,
) -> float:
    """Return a model's accuracy, 0 to 1; 500 images at a time are copied to the device."""
    model.eval()
    with torch.inference_mode():
        hits = [
            (model(prepare(some.to(device))).argmax(1) == names.to(device)).sum()
            for some, names in zip(x.split(500), y.split(500), strict=True)
        ]
    model.train()
    return torch.stack(hits).sum().item() / len(x)
