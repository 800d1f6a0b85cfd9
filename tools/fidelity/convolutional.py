"""Convolutional networks whose steps others have timed, as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 1000


class ConvNorm(nn.Sequential):
    """A convolution without bias, a batch norm and, where given, an activation in place."""

    def __init__(
        self,
        inside: int,
        outside: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        act: Callable[[], nn.Module] | None = None,
    ) -> None:
        conv = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outside), *([act()] if act else []))


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def _silu() -> nn.Module:
    return nn.SiLU(inplace=True)


def _hardswish() -> nn.Module:
    return nn.Hardswish(inplace=True)


class Squeeze(nn.Module):
    """Squeeze and excitation (Hu et al., 2017): each channel times a gate worked out from all."""

    def __init__(
        self,
        channels: int,
        squeezed: int,
        act: Callable[[], nn.Module] = _relu,
        gate: Callable[[], nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.reduce, self.act = nn.Conv2d(channels, squeezed, 1), act()
        self.expand, self.gate = nn.Conv2d(squeezed, channels, 1), gate()

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` gated."""
        gate = self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * self.gate(gate)


# --- ResNet, ResNeXt, SE-ResNeXt (He et al., 2015; Xie et al., 2016), the stride on the 3×3 ("v1.5")


class Residual(nn.Module):
    """A block of a ResNet: two 3×3 convolutions, or a bottleneck of 1×1, 3×3, 1×1."""

    def __init__(
        self, inside: int, width: int, stride: int, bottleneck: bool, groups: int, squeeze: bool
    ) -> None:
        super().__init__()
        if bottleneck:
            outside, middle = 4 * width, width * groups * 4 // 64 if groups > 1 else width
            body = [
                ConvNorm(inside, middle, act=_relu),
                ConvNorm(middle, middle, 3, stride, groups, _relu),
                ConvNorm(middle, outside),
            ]
        else:
            outside = width
            body = [ConvNorm(inside, width, 3, stride, act=_relu), ConvNorm(width, width, 3)]
        if squeeze:
            body.append(Squeeze(outside, outside // 16))
        self.body = nn.Sequential(*body)
        same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if same else ConvNorm(inside, outside, 1, stride)
        self.act = _relu()
        self.channels = outside

    def forward(self, x: Tensor) -> Tensor:
        """Add the body's result to the shortcut's."""
        out = self.body(x)
        out += self.shortcut(x)
        return self.act(out)


def resnet(
    *depths: int,
    bottleneck: bool = True,
    groups: int = 1,
    squeeze: bool = False,
    classes: int = CLASSES,
) -> nn.Sequential:
    """Return a ResNet with so many blocks a stage."""
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2, act=_relu), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            made = Residual(channels, 64 << stage, stride, bottleneck, groups, squeeze)
            layers.append(made)
            channels = made.channels
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    return nn.Sequential(*layers, *head)


# --- VGG (Simonyan & Zisserman, 2014)


def vgg16() -> nn.Sequential:
    """Return VGG-16."""
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), _relu()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = (nn.Linear(25088, 4096), _relu(), nn.Linear(4096, 4096), _relu())
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), *head, nn.Linear(4096, CLASSES)
    )


# --- DenseNet (Huang et al., 2016)


class Dense(nn.Module):
    """A layer of a DenseNet: it sees what all before it made, and adds 32 channels."""

    def __init__(self, inside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inside),
            _relu(),
            ConvNorm(inside, 128, act=_relu),
            nn.Conv2d(128, 32, 3, padding=1, bias=False),
        )

    def forward(self, seen: list[Tensor]) -> Tensor:
        """Return the 32 new channels."""
        return self.body(torch.cat(seen, 1))


class DenseBlock(nn.ModuleList):
    """So many `Dense` layers, each fed with all before it."""

    def forward(self, x: Tensor) -> Tensor:
        """Return everything that was made, side by side."""
        seen = [x]
        for layer in self:
            seen.append(layer(seen))
        return torch.cat(seen, 1)


def densenet121() -> nn.Sequential:
    """Return DenseNet-121."""
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2, act=_relu), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for depth in (6, 12, 24, 16):
        layers.append(DenseBlock(Dense(channels + 32 * i) for i in range(depth)))
        channels += 32 * depth
        layers.append(nn.BatchNorm2d(channels))
        layers.append(_relu())
        if depth != 16:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))
    return nn.Sequential(*layers, *head)


# --- MobileNetV3 and EfficientNet (Howard et al., 2019; Tan & Le, 2019)


class Inverted(nn.Module):
    """An inverted residual: widen, convolve each channel by itself, perhaps gate, narrow."""

    def __init__(
        self,
        inside: int,
        middle: int,
        outside: int,
        kernel: int,
        stride: int,
        act: Callable[[], nn.Module],
        squeeze: nn.Module | None,
    ) -> None:
        super().__init__()
        widen = [ConvNorm(inside, middle, act=act)] if middle != inside else []
        gate = [squeeze] if squeeze else []
        depthwise = ConvNorm(middle, middle, kernel, stride, middle, act)
        self.body = nn.Sequential(*widen, depthwise, *gate, ConvNorm(middle, outside))
        self.residual = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """Return the body's result, added to ``x`` where the sizes agree."""
        return self.body(x) + x if self.residual else self.body(x)


def efficientnet_b0() -> nn.Sequential:
    """Return EfficientNet-B0."""
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2, act=_silu)]
    inside = 32
    for widen, outside, depth, stride, kernel in (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ):
        for block in range(depth):
            middle, step = widen * inside, 1 if block else stride
            squeeze = Squeeze(middle, inside // 4, _silu)
            layers.append(Inverted(inside, middle, outside, kernel, step, _silu, squeeze))
            inside = outside
    layers += [ConvNorm(inside, 1280, act=_silu), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(1280, CLASSES))


def mobilenet_v3_large() -> nn.Sequential:
    """Return MobileNetV3-Large."""
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2, act=_hardswish)]
    inside = 16
    for middle, outside, kernel, stride, gated, act in (
        (16, 16, 3, 1, False, _relu),
        (64, 24, 3, 2, False, _relu),
        (72, 24, 3, 1, False, _relu),
        (72, 40, 5, 2, True, _relu),
        (120, 40, 5, 1, True, _relu),
        (120, 40, 5, 1, True, _relu),
        (240, 80, 3, 2, False, _hardswish),
        (200, 80, 3, 1, False, _hardswish),
        (184, 80, 3, 1, False, _hardswish),
        (184, 80, 3, 1, False, _hardswish),
        (480, 112, 3, 1, True, _hardswish),
        (672, 112, 3, 1, True, _hardswish),
        (672, 160, 5, 2, True, _hardswish),
        (960, 160, 5, 1, True, _hardswish),
        (960, 160, 5, 1, True, _hardswish),
    ):
        squeezed = (middle // 4 + 4) // 8 * 8  # a multiple of 8, not more than a tenth too small
        squeezed += 8 * (squeezed < 0.9 * middle / 4)
        squeeze = Squeeze(middle, squeezed, gate=nn.Hardsigmoid) if gated else None
        layers.append(Inverted(inside, middle, outside, kernel, stride, act, squeeze))
        inside = outside
    layers += [ConvNorm(inside, 960, act=_hardswish), nn.AdaptiveAvgPool2d(1)]
    layers += [nn.Conv2d(960, 1280, 1), _hardswish(), nn.Flatten(), nn.Linear(1280, CLASSES)]
    return nn.Sequential(*layers)


# --- ConvNeXt (Liu et al., 2022)


class ChannelNorm(nn.LayerNorm):
    """A layer norm over the channels of images whose channels come second."""

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalised."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NextBlock(nn.Module):
    """A block of a ConvNeXt."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.body = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Add the body's result, scaled a channel, to ``x``."""
        out = self.body(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + out * self.scale.reshape(1, -1, 1, 1)


class Pooled(nn.Module):
    """Mean over an image, layer norm, classes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes."""
        return self.classes(self.norm(F.adaptive_avg_pool2d(x, 1).flatten(1)))


def convnext(depth: int, width: int) -> nn.Sequential:
    """Return a ConvNeXt with stages of 3, 3, ``depth`` and 3 blocks."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width)]
    for stage, blocks in enumerate((3, 3, depth, 3)):
        if stage:
            layers += [ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [NextBlock(width) for _ in range(blocks)]
    return nn.Sequential(*layers, Pooled(width))


def small_cnn() -> nn.Module:
    """Return three convolutions and two linear layers for 32 × 32 images: 74 MFLOP an image to train."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def wide_cnn() -> nn.Module:
    """Return four wide convolutions for 32 × 32 images: 1.1 GFLOP an image to train."""
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(128, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(), nn.MaxPool2d(4)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )
