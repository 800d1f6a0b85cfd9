"""The networks that rows may name, their inputs and losses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from . import convolutional as conv
from .transformers import Bert, Gpt, Llama, Shape, ViT
from .work import Step

_TINY, _SMALL = Shape(12, 192, 3, 768), Shape(12, 384, 6, 1536)
_BASE, _LARGE = Shape(12, 768, 12, 3072), Shape(24, 1024, 16, 4096)
# Layers, width and heads as in the configurations of MosaicML's llm-foundry.
_MPT = {"125m": (12, 768, 12), "350m": (24, 1024, 16), "760m": (24, 1536, 12)}
_MPT |= {"1b": (24, 2048, 16), "3b": (32, 2560, 20), "7b": (32, 4096, 32)}

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "small_cnn": conv.small_cnn,
    "wide_cnn": conv.wide_cnn,
    "resnet18": partial(conv.resnet, 2, 2, 2, 2, bottleneck=False),
    "resnet34": partial(conv.resnet, 3, 4, 6, 3, bottleneck=False),
    "resnet50": partial(conv.resnet, 3, 4, 6, 3),
    "resnet101": partial(conv.resnet, 3, 4, 23, 3),
    "resnext101_32x4d": partial(conv.resnet, 3, 4, 23, 3, groups=32),
    "seresnext101_32x4d": partial(conv.resnet, 3, 4, 23, 3, groups=32, squeeze=True),
    "vgg16": conv.vgg16,
    "densenet121": conv.densenet121,
    "efficientnet_b0": conv.efficientnet_b0,
    "mobilenetv3_large_100": conv.mobilenet_v3_large,
    "convnext_tiny": partial(conv.convnext, 9, 96),
    "convnext_base": partial(conv.convnext, 27, 128),
    "convnext_large": partial(conv.convnext, 27, 192),
    "vit_tiny_patch16_224": partial(ViT, _TINY),
    "vit_small_patch16_224": partial(ViT, _SMALL),
    "deit_small_patch16_224": partial(ViT, _SMALL),
    "vit_base_patch16_224": partial(ViT, _BASE),
    "vit_large_patch16_224": partial(ViT, _LARGE),
    "bert_base": partial(Bert, _BASE),
    "bert_large": partial(Bert, _LARGE),
    "gpt2": partial(Gpt, _BASE, 50257, 1024),
    "llama_2_7b": partial(Llama, Shape(32, 4096, 32, 11008), 32, 32000),
    "llama_2_13b": partial(Llama, Shape(40, 5120, 40, 13824), 40, 32000),
    "llama_3.2_3b": partial(Llama, Shape(28, 3072, 24, 8192), 8, 128256, True),
    **{f"mpt_{k}": partial(Gpt, Shape(d, w, h, 4 * w), 50368) for k, (d, w, h) in _MPT.items()},
}
"""A function for each network's name that creates it; its keyword arguments are the step's options."""


def input_shapes(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of a step's input batch and of its labels."""
    batch, size, options = step.batch, step.size, dict(step.options)
    if step.network.startswith("bert"):
        width = NETWORKS[step.network].args[0].width
        shape = (batch, size) if options.get("embedded", True) else (batch, size, width)
        labels = {"words": (batch * size,), "span": (2 * batch,)}
        return shape, labels.get(options.get("head", "pooler"), (batch,))
    if step.network.startswith(("gpt", "mpt", "llama")):
        return (batch, size), (batch * size,)
    return (batch, 3, size, size), (batch,)


def loss_of(step: Step, scores: Tensor, targets: Tensor) -> Tensor:
    """Return the scalar loss of a step's network: cross entropy of the scores, or the sum of the scores."""
    if step.loss == "sum":
        return scores.sum()
    if scores.dim() == 2:
        return F.cross_entropy(scores, targets)
    if dict(step.options).get("head") == "span":  # the first and the last word of an answer
        first, last = scores.unbind(-1)
        positions = targets.view(2, -1)
        return (F.cross_entropy(first, positions[0]) + F.cross_entropy(last, positions[1])) / 2
    return F.cross_entropy(scores.flatten(0, 1), targets)
