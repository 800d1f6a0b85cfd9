"""Convolutional networks whose steps others have timed, as their papers describe them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

CLASSES = 1000
_relu, _silu = partial(nn.ReLU, inplace=True), partial(nn.SiLU, inplace=True)
_hardswish = partial(nn.Hardswish, inplace=True)
Act = Callable[[], nn.Module]


def _conv_norm(
    inside: int, outside: int, k: int = 1, stride: int = 1, groups: int = 1, act: Act | None = None
):
    """Return, as one module, a convolution without bias, a batch norm, and an activation if one is given.

    ``inside`` and ``outside`` are the numbers of channels; ``act`` returns a new activation. ``k`` is the
    kernel's side; the padding is ``k // 2``.
    """
    conv = nn.Conv2d(inside, outside, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside), *([act()] if act else []))


def _pooled_head(*layers: nn.Module) -> tuple[nn.Module, ...]:
    """Return global average pooling and flattening, followed by the given layers."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), *layers


class SqueezeExcitation(nn.Module):
    """Squeeze and excitation (Hu et al., 2017): each channel times a gate computed from all channels."""

    def __init__(self, channels: int, squeezed: int, act: Act = _relu, gate: Act = nn.Sigmoid) -> None:
        super().__init__()
        self.reduce, self.act = nn.Conv2d(channels, squeezed, 1), act()
        self.expand, self.gate = nn.Conv2d(squeezed, channels, 1), gate()

    def forward(self, x: Tensor) -> Tensor:
        """Return x, (batch, channels, height, width), with its channels scaled."""
        gate = self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * self.gate(gate)


class Residual(nn.Module):
    """A residual block of a ResNet: the body's output plus the shortcut, then ReLU."""

    def __init__(self, inside: int, outside: int, stride: int, body: list[nn.Module]) -> None:
        super().__init__()
        self.body, self.act = nn.Sequential(*body), _relu()
        same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if same else _conv_norm(inside, outside, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Return the body's output plus the shortcut, after ReLU."""
        out = self.body(x)
        out += self.shortcut(x)
        return self.act(out)


def resnet(*depths: int, bottleneck=True, groups=1, squeeze=False, classes=CLASSES) -> nn.Sequential:
    """Return a ResNet, ResNeXt or SE-ResNeXt (He et al., 2015; Xie et al., 2016) for images of 3 channels.

    ``depths`` are the numbers of blocks in each stage; ``squeeze`` adds squeeze and excitation. A block is
    two 3×3 convolutions, or a bottleneck of 1×1, 3×3, 1×1 with the stride on the 3×3 ("v1.5"). More than one
    of ``groups`` makes a ResNeXt, whose groups have 4 channels in the first stage; only bottlenecks use it.
    """
    layers: list[nn.Module] = [_conv_norm(3, 64, 7, 2, act=_relu), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            if bottleneck:
                outside, middle = 4 * width, width * groups * 4 // 64 if groups > 1 else width
                body = [
                    _conv_norm(inside, middle, act=_relu),
                    _conv_norm(middle, middle, 3, stride, groups, _relu),
                ]
                body.append(_conv_norm(middle, outside))
            else:
                outside = width
                body = [_conv_norm(inside, width, 3, stride, act=_relu), _conv_norm(width, width, 3)]
            if squeeze:
                body.append(SqueezeExcitation(outside, outside // 16))
            layers.append(Residual(inside, outside, stride, body))
            inside = outside
    return nn.Sequential(*layers, *_pooled_head(nn.Linear(inside, classes)))


def vgg16() -> nn.Sequential:
    """Return VGG-16 (Simonyan & Zisserman, 2014)."""
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), _relu()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(25088, 4096), _relu()]
    return nn.Sequential(*layers, nn.Linear(4096, 4096), _relu(), nn.Linear(4096, CLASSES))


class DenseBlock(nn.Module):
    """A dense block: each of ``depth`` layers gets the outputs of all before it and adds 32 channels."""

    def __init__(self, inside: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                *(nn.BatchNorm2d(channels), _relu(), _conv_norm(channels, 128, act=_relu)),
                nn.Conv2d(128, 32, 3, padding=1, bias=False),
            )
            for channels in range(inside, inside + 32 * depth, 32)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return x and the outputs of all layers, concatenated along the channels."""
        features = [x]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


def densenet121() -> nn.Sequential:
    """Return DenseNet-121 (Huang et al., 2016)."""
    layers: list[nn.Module] = [_conv_norm(3, 64, 7, 2, act=_relu), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for depth in (6, 12, 24, 16):
        layers.append(DenseBlock(channels, depth))
        channels += 32 * depth
        layers += [nn.BatchNorm2d(channels), _relu()]
        if depth != 16:
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, *_pooled_head(nn.Linear(channels, CLASSES)))


class InvertedResidual(nn.Module):
    """An inverted residual block: expansion, depthwise convolution, optional SE, projection."""

    def __init__(self, inside, middle, outside, kernel, stride, act: Act, squeeze: nn.Module | None) -> None:
        super().__init__()
        body = [_conv_norm(inside, middle, act=act)] if middle != inside else []
        body += [
            _conv_norm(middle, middle, kernel, stride, middle, act),
            *([squeeze] if squeeze else []),
        ]
        self.body = nn.Sequential(*body, _conv_norm(middle, outside))
        self.residual = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """Return the body's output, plus x where the shapes are the same."""
        return self.body(x) + x if self.residual else self.body(x)


# Widening, channels, blocks, stride, kernel.
_EFFICIENT = (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)
_EFFICIENT += (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)


def efficientnet_b0() -> nn.Sequential:
    """Return EfficientNet-B0 (Tan & Le, 2019)."""
    layers: list[nn.Module] = [_conv_norm(3, 32, 3, 2, act=_silu)]
    inside = 32
    for widen, outside, depth, stride, kernel in _EFFICIENT:
        for block in range(depth):
            middle, step = widen * inside, 1 if block else stride
            squeeze = SqueezeExcitation(middle, inside // 4, _silu)
            layers.append(InvertedResidual(inside, middle, outside, kernel, step, _silu, squeeze))
            inside = outside
    layers.append(_conv_norm(inside, 1280, act=_silu))
    return nn.Sequential(*layers, *_pooled_head(nn.Linear(1280, CLASSES)))


# Middle channels, channels, kernel, stride, whether gated; up to the sixth the activation is ReLU.
_MOBILE = (16, 16, 3, 1, False), (64, 24, 3, 2, False), (72, 24, 3, 1, False), (72, 40, 5, 2, True)
_MOBILE += ((120, 40, 5, 1, True),) * 2 + ((240, 80, 3, 2, False), (200, 80, 3, 1, False))
_MOBILE += ((184, 80, 3, 1, False),) * 2 + ((480, 112, 3, 1, True), (672, 112, 3, 1, True))
_MOBILE += ((672, 160, 5, 2, True),) + ((960, 160, 5, 1, True),) * 2


def mobilenet_v3_large() -> nn.Sequential:
    """Return MobileNetV3-Large (Howard et al., 2019)."""
    layers: list[nn.Module] = [_conv_norm(3, 16, 3, 2, act=_hardswish)]
    inside = 16
    for i, (middle, outside, kernel, stride, gated) in enumerate(_MOBILE):
        squeezed = (middle // 4 + 4) // 8 * 8  # a multiple of 8, not more than a tenth too small
        squeezed += 8 * (squeezed < 0.9 * middle / 4)
        squeeze = SqueezeExcitation(middle, squeezed, gate=nn.Hardsigmoid) if gated else None
        act = _relu if i < 6 else _hardswish
        layers.append(InvertedResidual(inside, middle, outside, kernel, stride, act, squeeze))
        inside = outside
    layers += [_conv_norm(inside, 960, act=_hardswish), nn.AdaptiveAvgPool2d(1), nn.Conv2d(960, 1280, 1)]
    return nn.Sequential(*layers, _hardswish(), nn.Flatten(), nn.Linear(1280, CLASSES))


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of images in (batch, channels, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x normalised over its second dimension."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A block of a ConvNeXt, with layer scale and without stochastic depth."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        mlp = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        self.body = nn.Sequential(nn.LayerNorm(width), *mlp)
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return x plus the block's scaled output."""
        out = self.body(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + out * self.scale.reshape(1, -1, 1, 1)


def convnext(depth: int, width: int) -> nn.Sequential:
    """Return a ConvNeXt (Liu et al., 2022) with 3, 3, ``depth`` and 3 blocks in its stages.

    The first stage has ``width`` channels, each following one twice as many. Layer scale starts at ones;
    there is no stochastic depth.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width)]
    for stage, blocks in enumerate((3, 3, depth, 3)):
        if stage:
            layers += [ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, 2)]
            width *= 2
        layers += [ConvNeXtBlock(width) for _ in range(blocks)]
    return nn.Sequential(*layers, *_pooled_head(nn.LayerNorm(width), nn.Linear(width, CLASSES)))


def small_cnn() -> nn.Module:
    """Return a CNN for CIFAR-10, (batch, 3, 32, 32): three 5×5 convolutions with pooling, two linear layers.

    Training it takes 74 MFLOP an image, three forward passes' worth.
    """
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)),
    )


def wide_cnn() -> nn.Module:
    """Return a CNN for CIFAR-10, (batch, 3, 32, 32): four 3×3 convolutions of 64 to 256 channels.

    Each is followed by batch norm and ReLU. Training it takes 1.1 GFLOP an image.
    """
    return nn.Sequential(
        *(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(128, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(256, 256, 3, padding=1), nn.BatchNorm2d(256), nn.ReLU(), nn.MaxPool2d(4)),
        *(nn.Flatten(), nn.Linear(1024, 10)),
    )
