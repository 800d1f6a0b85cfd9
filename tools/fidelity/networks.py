"""The networks that rows may name, and how each is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from . import convolutional as conv
from .attention import Bert, Gpt, Shape, ViT
from .llama import Llama, LlamaShape
from .workload import Step

TINY, SMALL = Shape(12, 192, 3, 768), Shape(12, 384, 6, 1536)
BASE, LARGE = Shape(12, 768, 12, 3072), Shape(24, 1024, 16, 4096)

MPT = {
    "125m": Shape(12, 768, 12, 3072),
    "350m": Shape(24, 1024, 16, 4096),
    "760m": Shape(24, 1536, 12, 6144),
    "1b": Shape(24, 2048, 16, 8192),
    "3b": Shape(32, 2560, 20, 10240),
    "7b": Shape(32, 4096, 32, 16384),
}
"""As in the configurations of MosaicML's llm-foundry."""

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
    "vit_tiny_patch16_224": partial(ViT, TINY),
    "vit_small_patch16_224": partial(ViT, SMALL),
    "deit_small_patch16_224": partial(ViT, SMALL),
    "vit_base_patch16_224": partial(ViT, BASE),
    "vit_large_patch16_224": partial(ViT, LARGE),
    "bert_base": partial(Bert, BASE),
    "bert_large": partial(Bert, LARGE),
    "gpt2": partial(Gpt, BASE, 50257, 1024),
    "llama_2_7b": partial(Llama, LlamaShape(32, 4096, 32, 32, 11008, 32000, False)),
    "llama_2_13b": partial(Llama, LlamaShape(40, 5120, 40, 40, 13824, 32000, False)),
    "llama_3.2_3b": partial(Llama, LlamaShape(28, 3072, 24, 8, 8192, 128256, True)),
    **{f"mpt_{name}": partial(Gpt, shape, 50368) for name, shape in MPT.items()},
}
"""A network's name and what makes it; the options it takes are those of its maker."""


def _option(step: Step, name: str, default: object) -> object:
    return dict(step.options).get(name, default)


def input_of(step: Step) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of a step's batch and of the labels it is trained with."""
    batch, size = step.batch, step.size
    if step.network.startswith("bert"):
        width = NETWORKS[step.network].args[0].width
        shape = (batch, size) if _option(step, "embedded", True) else (batch, size, width)
        head = _option(step, "head", "pooler")
        return shape, {"words": (batch * size,), "span": (2 * batch,)}.get(head, (batch,))
    if step.network.startswith(("gpt", "mpt", "llama")):
        return (batch, size), (batch * size,)
    return (batch, 3, size, size), (batch,)


def loss_of(step: Step, scores: Tensor, wanted: Tensor) -> Tensor:
    """Return the loss that a step's network is trained with."""
    if step.loss == "sum":
        return scores.sum()
    if scores.dim() == 2:
        return F.cross_entropy(scores, wanted)
    if _option(step, "head", "words") == "span":  # the first and the last word of an answer
        first, last = scores.unbind(-1)
        at = wanted.view(2, -1)
        return (F.cross_entropy(first, at[0]) + F.cross_entropy(last, at[1])) / 2
    return F.cross_entropy(scores.flatten(0, 1), wanted)
