"""Llama (Touvron et al., 2023; Dubey et al., 2024), as its configurations describe it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LlamaShape(NamedTuple):
    """How large a Llama is.

    Attributes
    ----------
    depth, width, heads, groups
        Layers; numbers a token; heads of attention, and of its keys and values.
    inner, words
        The width between the products of a layer's second half; how many words it knows.
    tied
        Whether the words' embeddings are also its last product.
    """

    depth: int
    width: int
    heads: int
    groups: int
    inner: int
    words: int
    tied: bool


class RootNorm(nn.Module):
    """A norm by the root of the mean square, of single operators, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalised."""
        exact = x.float()
        root = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (exact * root).type_as(x) * self.scale


def turned(x: Tensor, angles: Tensor) -> Tensor:
    """Return pairs of numbers turned by angles that depend on their place (RoPE), in float32."""
    first, second = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cosine, sine = angles.unbind(-1)
    pair = first * cosine - second * sine, second * cosine + first * sine
    return torch.stack(pair, -1).flatten(-2).type_as(x)


class LlamaLayer(nn.Module):
    """A layer: attention whose keys serve several heads, and a gated product."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        width, head = shape.width, shape.width // shape.heads
        self.heads, self.groups = shape.heads, shape.groups
        self.norm1, self.norm2 = RootNorm(width), RootNorm(width)
        sizes = (shape.heads, shape.groups, shape.groups)
        self.first = nn.ModuleList(nn.Linear(width, n * head, bias=False) for n in sizes)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, width, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Return the tokens after this layer."""
        batch, tokens, width = x.shape
        normal = self.norm1(x)
        query, key, value = (
            part(normal).view(batch, tokens, -1, width // self.heads) for part in self.first
        )
        query, key = turned(query, angles).transpose(1, 2), turned(key, angles).transpose(1, 2)
        shared = self.heads // self.groups
        key, value = (
            each if shared == 1 else each.repeat_interleave(shared, 1)
            for each in (key, value.transpose(1, 2))
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=tokens > 1)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        normal = self.norm2(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    """A Llama that sees at most so many ``places``."""

    def __init__(self, shape: LlamaShape, places: int = 4096) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.words, shape.width)
        self.layers = nn.ModuleList(LlamaLayer(shape) for _ in range(shape.depth))
        self.norm = RootNorm(shape.width)
        self.scores = nn.Linear(shape.width, shape.words, bias=False)
        if shape.tied:
            self.scores.weight = self.words.weight
        head = shape.width // shape.heads
        self.register_buffer("angles", torch.zeros(places, 1, head // 2, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for every word at every place."""
        x, angles = self.words(tokens), self.angles[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, angles)
        return self.scores(self.norm(x))
