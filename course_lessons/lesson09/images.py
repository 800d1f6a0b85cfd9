"""The images of lesson 09: their shape, their scale, and the share of them that a model names rightly."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def shaped(images: Tensor) -> Tensor:
    """Take bytes (n, 28, 28) or (n, 32, 32, 3); return bytes (n, 3, 32, 32)."""
    if images.ndim == 4:
        return images.permute(0, 3, 1, 2).contiguous()
    return F.pad(images, (2, 2, 2, 2))[:, None].repeat(1, 3, 1, 1)


def normal(images: Tensor, mean: float, std: float) -> Tensor:
    """Return bytes as numbers with mean 0 and standard deviation 1."""
    return (images.float() / 255 - mean) / std


def accuracy(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    prepare: Callable[[Tensor], Tensor],
    device: torch.device,
) -> float:
    """Return the share of images that a model names rightly, from 0 to 1; 500 at a time go to the device."""
    model.eval()
    with torch.inference_mode():
        hits = [
            (model(prepare(some.to(device))).argmax(1) == names.to(device)).sum()
            for some, names in zip(x.split(500), y.split(500), strict=True)
        ]
    model.train()
    return torch.stack(hits).sum().item() / len(x)
