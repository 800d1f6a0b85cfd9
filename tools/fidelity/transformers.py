"""Transformers whose steps others have timed, as their papers and configurations describe them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Shape(NamedTuple):
    """Size of a transformer: number of layers, hidden size, heads, and size of the MLP's hidden layer."""

    depth: int
    width: int
    heads: int
    inner: int


class Attention(nn.Module):
    """Multi-head self-attention, (batch, tokens, width) to the same shape.

    ``fused`` uses scaled_dot_product_attention, else separate operators; ``joint`` computes query, key and
    value in one product, else in three. ``dropout`` applies to separate operators only: a GPU's fused kernel
    applies it at almost no cost, and the CPU's has none.
    """

    def __init__(
        self, width: int, heads: int, fused=True, joint=True, bias=True, causal=False, dropout=0.0
    ) -> None:
        super().__init__()
        self.heads, self.fused, self.causal, self.dropout = heads, fused, causal, dropout
        sizes = [3 * width] if joint else [width] * 3
        self.first = nn.ModuleList(nn.Linear(width, size, bias) for size in sizes)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the attention's output; ``mask`` is added to the scores."""
        batch, tokens, width = x.shape
        if len(self.first) == 1:
            joint = self.first[0](x).reshape(batch, tokens, 3, self.heads, width // self.heads)
            query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        else:
            split = (batch, tokens, self.heads, width // self.heads)
            query, key, value = (part(x).view(split).transpose(1, 2) for part in self.first)
        if self.fused:
            causal = self.causal and mask is None
            out = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)
        else:
            out = self._attention_weights(query, key, mask) @ value
        return self.out(out.transpose(1, 2).reshape(batch, tokens, width))

    def _attention_weights(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention weights, (batch, heads, tokens, tokens), by separate operators."""
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if self.causal:
            tokens = scores.shape[-1]
            later = torch.ones(tokens, tokens, dtype=torch.bool, device=scores.device).triu(1)
            scores.masked_fill_(later, -math.inf)
        if mask is not None:
            scores = scores + mask
        weights = F.softmax(scores, -1)
        return F.dropout(weights, self.dropout) if self.dropout and self.training else weights


class NormByHand(nn.Module):
    """Layer norm of elementwise operators and reductions, as courses write it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        spread = (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        return self.scale * ((x - mean) / spread) + self.shift


class GeluByHand(nn.Module):
    """GELU's tanh approximation, of separate operators."""

    def forward(self, x: Tensor) -> Tensor:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))
        return 0.5 * x * (1 + torch.tanh(inner))


def _mlp(shape: Shape, by_hand: bool = False) -> nn.Sequential:
    """Return a transformer's MLP: linear, GELU, linear."""
    act = GeluByHand() if by_hand else nn.GELU()
    return nn.Sequential(nn.Linear(shape.width, shape.inner), act, nn.Linear(shape.inner, shape.width))


class Layer(nn.Module):
    """A pre-norm transformer layer, as in ViT and GPT-2; ``by_hand``: norms and GELU of several operators."""

    def __init__(self, shape: Shape, dropout=0.0, by_hand=False, **attention: bool) -> None:
        super().__init__()
        norm = NormByHand if by_hand else nn.LayerNorm
        self.norm1, self.norm2 = norm(shape.width), norm(shape.width)
        self.attention = Attention(shape.width, shape.heads, dropout=dropout, **attention)
        self.mlp = _mlp(shape, by_hand)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class ViT(nn.Module):
    """A vision transformer for 224 × 224 in patches of 16 × 16 (Dosovitskiy et al.; Touvron et al., 2020)."""

    def __init__(self, shape: Shape, classes: int = 1000, **layer: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, shape.width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.places = nn.Parameter(torch.zeros(1, 197, shape.width))
        self.layers = nn.Sequential(*(Layer(shape, **layer) for _ in range(shape.depth)))
        self.norm = nn.LayerNorm(shape.width)
        self.classes = nn.Linear(shape.width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes, (batch, classes), of images (batch, 3, 224, 224)."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.classes(self.norm(self.layers(x))[:, 0])


class BertLayer(nn.Module):
    """A post-norm transformer layer."""

    def __init__(self, shape: Shape, dropout: float, fused: bool) -> None:
        super().__init__()
        width = shape.width
        self.attention = Attention(width, shape.heads, fused, joint=False, dropout=dropout)
        self.mlp = _mlp(shape)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.norm1(self.drop(self.attention(x, mask)) + x)
        return self.norm2(self.drop(self.mlp(x)) + x)


class Bert(nn.Module):
    """BERT (Devlin et al., 2018), with a head or none.

    ``head`` is ``"pooler"``; ``"words"``, a score for each word of the vocabulary at each position;
    ``"span"``, two scores at each position; or ``""``. Without ``embedded`` its input is embeddings instead
    of token ids.
    """

    WORDS = 30522

    def __init__(self, shape: Shape, head="pooler", fused=False, dropout=0.1, embedded=True) -> None:
        super().__init__()
        width = shape.width
        self.words = nn.Embedding(self.WORDS, width) if embedded else None
        if embedded:
            self.places, self.kinds = nn.Embedding(512, width), nn.Embedding(2, width)
            self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(shape, dropout, fused) for _ in range(shape.depth))
        self.kind, self.head = head, nn.Linear(width, 2) if head == "span" else nn.Identity()
        if head == "pooler":
            self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        elif head == "words":
            scores = nn.Linear(width, self.WORDS)
            scores.weight = self.words.weight
            dense = (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
            self.head = nn.Sequential(*dense, scores)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the head's output for token ids (batch, tokens), or for embeddings without ``embedded``."""
        x, mask = tokens, None
        if self.words is not None:
            places = torch.arange(tokens.shape[1], device=tokens.device)
            x = self.words(tokens) + self.kinds(torch.zeros_like(tokens))
            x = self.drop(self.norm(x + self.places(places)))
        if not self.layers[0].attention.fused:
            mask = torch.zeros(len(x), 1, 1, x.shape[1], dtype=x.dtype, device=x.device)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, 0] if self.kind == "pooler" else x)


class Gpt(nn.Module):
    """GPT-2 (Radford et al., 2019) and similar models.

    Parameters
    ----------
    shape, words, places
        Its size, the size of the vocabulary, and the maximum number of tokens.
    tied
        Whether the output layer shares the weights of the token embedding.
    again
        Whether to use activation checkpointing on each layer.
    dropout, by_hand, layer
        As for `Layer` and `Attention`.
    """

    def __init__(
        self,
        shape: Shape,
        words,
        places,
        tied=True,
        dropout=0.0,
        by_hand=False,
        again=False,
        **layer: Any,
    ) -> None:
        super().__init__()
        self.words, self.places = (nn.Embedding(n, shape.width) for n in (words, places))
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()
        layers = (Layer(shape, dropout, by_hand, causal=True, **layer) for _ in range(shape.depth))
        self.layers = nn.ModuleList(layers)
        self.norm = (NormByHand if by_hand else nn.LayerNorm)(shape.width)
        self.scores = nn.Linear(shape.width, words, bias=False)
        if tied:
            self.scores.weight = self.words.weight
        self.again = again

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores, (batch, tokens, words), of token ids (batch, tokens)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.words(tokens) + self.places(places))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.scores(self.norm(x))


class RMSNorm(nn.Module):
    """Root-mean-square norm of separate operators, in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        exact = x.float()
        root = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (exact * root).type_as(x) * self.scale


def rotary_embedding(x: Tensor, angles: Tensor) -> Tensor:
    """Return x with rotary position embedding (RoPE) applied, computed in float32.

    ``angles`` holds the cosine and sine for each position and pair of elements in its last dimension.
    """
    first, second = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cosine, sine = angles.unbind(-1)
    pair = first * cosine - second * sine, second * cosine + first * sine
    return torch.stack(pair, -1).flatten(-2).type_as(x)


class LlamaLayer(nn.Module):
    """A layer of Llama: grouped-query attention with ``groups`` key-value heads, and a gated MLP."""

    def __init__(self, shape: Shape, groups: int) -> None:
        super().__init__()
        width, head = shape.width, shape.width // shape.heads
        self.head, self.shared = head, shape.heads // groups
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        sizes = (shape.heads, groups, groups)
        self.first = nn.ModuleList(nn.Linear(width, n * head, bias=False) for n in sizes)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, shape.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(shape.inner, width, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Return the layer's output, (batch, tokens, width); ``angles`` as for `rotary_embedding`."""
        batch, tokens, width = x.shape
        normal = self.norm1(x)
        query, key, value = (part(normal).view(batch, tokens, -1, self.head) for part in self.first)
        query, key = (
            rotary_embedding(query, angles).transpose(1, 2),
            rotary_embedding(key, angles).transpose(1, 2),
        )
        value = value.transpose(1, 2)
        if self.shared > 1:
            key, value = (each.repeat_interleave(self.shared, 1) for each in (key, value))
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=tokens > 1)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        normal = self.norm2(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    """Llama (Touvron et al., 2023; Dubey et al., 2024), with ``groups`` key-value heads."""

    def __init__(self, shape: Shape, groups: int, words: int, tied=False, places=4096) -> None:
        super().__init__()
        self.words = nn.Embedding(words, shape.width)
        self.layers = nn.ModuleList(LlamaLayer(shape, groups) for _ in range(shape.depth))
        self.norm = RMSNorm(shape.width)
        self.scores = nn.Linear(shape.width, words, bias=False)
        if tied:
            self.scores.weight = self.words.weight
        self.register_buffer("angles", torch.zeros(places, 1, shape.width // shape.heads // 2, 2))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores, (batch, tokens, words), of token ids (batch, tokens)."""
        x, angles = self.words(tokens), self.angles[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, angles)
        return self.scores(self.norm(x))
