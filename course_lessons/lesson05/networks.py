"""The networks of lesson 05, and the digits they are trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional as F

from course_language import N_, _
from course_utils import load_digits


@dataclass(frozen=True)
class Digits:
    """Images (n, 1, 28, 28), standardised, and labels (n,), all on one device."""

    images: torch.Tensor
    labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor

    def batch(self, i: int, size: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
        """Return images and labels of batch ``i``; after 8,000 digits they repeat."""
        here = slice(i * size % 8000, i * size % 8000 + size)
        return self.images[here], self.labels[here]


def digits_on(device: torch.device | str) -> Digits:
    """Return the course's digits on a device, standardised."""
    read = load_digits()
    train, test = (
        ((x.float() / 255 - 0.1309) / 0.3084).unsqueeze(1).to(device) for x in (read.train_x, read.test_x)
    )
    return Digits(train, read.train_y.to(device), test, read.test_y.to(device))


def mlp(*sizes: int, between: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    """Return linear layers of these sizes with ``between()`` between them, always with the same weights."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inp, out in pairwise(sizes):
        layers += [nn.Linear(inp, out), between()]
    return nn.Sequential(nn.Flatten(), *layers[:-1])


def deep_net(device: torch.device) -> nn.Sequential:
    """Return a network with seven sigmoids, whose gradients are small on purpose."""
    return mlp(784, *[64] * 7, 10, between=nn.Sigmoid).to(device)


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def four_networks(x: torch.Tensor, y: torch.Tensor) -> dict[str, tuple[nn.Sequential, Loss, torch.Tensor]]:
    """Return four untrained networks on the device of ``x``: name to (network, loss function, target).

    Parameters
    ----------
    x
        Images.
    y
        Their labels.
    """

    def norm_and_relu() -> nn.Module:
        return nn.Sequential(nn.LayerNorm(64), nn.ReLU())

    normed = mlp(784, *[64] * 12, 10, between=norm_and_relu)
    autoencoder = mlp(784, 256, 64, 16, 64, 256, 784)
    read = F.cross_entropy
    four = {
        N_("2 layers"): (mlp(784, 128, 10), read, y),
        N_("autoencoder, mean over pixels"): (autoencoder, F.mse_loss, x.flatten(1)),
        N_("13 layers"): (mlp(784, *[64] * 12, 10), read, y),
        N_("13 layers with layer norm"): (normed, read, y),
    }
    return {_(name): (net.to(x.device), *more) for name, (net, *more) in four.items()}


def small_cnn(width: int) -> nn.Sequential:
    """Return a CNN for (n, 1, 28, 28): three blocks of convolution, batch norm, ReLU, pooling; one linear
    layer.
    """
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inp, out in pairwise((1, width, 2 * width, 4 * width)):
        layers += [nn.Conv2d(inp, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(36 * width, 10))
