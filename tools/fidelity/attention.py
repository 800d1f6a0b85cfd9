"""Transformers whose steps others have timed, as their papers and configurations describe them."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Shape(NamedTuple):
    """How large a transformer is.

    Attributes
    ----------
    depth, width, heads
        Layers; numbers a token; heads of attention.
    inner
        The width between the two products of a layer's second half.
    """

    depth: int
    width: int
    heads: int
    inner: int


class Attention(nn.Module):
    """Attention with as many keys as queries.

    Parameters
    ----------
    width, heads
        See `Shape`.
    fused
        Whether it is PyTorch's one operator, or its products and softmax by themselves.
    joint
        Whether query, key and value come from one product.
    bias, causal, dropout
        Of the first products; whether a token sees only those before it; the share that is dropped.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        fused: bool = True,
        joint: bool = True,
        bias: bool = True,
        causal: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.heads, self.fused, self.causal, self.dropout = heads, fused, causal, dropout
        first = [nn.Linear(width, 3 * width, bias)] if joint else []
        self.first = nn.ModuleList(first or [nn.Linear(width, width, bias) for _ in range(3)])
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return what each token takes from the others; ``mask`` is added to the scores."""
        batch, tokens, width = x.shape
        if len(self.first) == 1:
            joint = self.first[0](x).reshape(batch, tokens, 3, self.heads, width // self.heads)
            query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        else:
            split = (batch, tokens, self.heads, width // self.heads)
            query, key, value = (part(x).view(split).transpose(1, 2) for part in self.first)
        dropped = self.dropout if self.training else 0.0
        # A GPU's fused kernel drops on the way at next to no cost; the CPU's cannot drop.
        if self.fused:
            out = F.scaled_dot_product_attention(
                query, key, value, mask, is_causal=self.causal and mask is None
            )
        else:
            out = self._by_hand(query, key, value, mask, dropped)
        return self.out(out.transpose(1, 2).reshape(batch, tokens, width))

    def _by_hand(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropped: float
    ) -> Tensor:
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        if self.causal:
            tokens = scores.shape[-1]
            later = torch.ones(tokens, tokens, dtype=torch.bool, device=scores.device).triu(1)
            scores.masked_fill_(later, -math.inf)
        if mask is not None:
            scores = scores + mask
        weights = F.softmax(scores, -1)
        return (F.dropout(weights, dropped) if dropped else weights) @ value


class NormByHand(nn.Module):
    """A layer norm of single operators, as a course writes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` normalised."""
        mean = x.mean(-1, keepdim=True)
        spread = (x.var(-1, keepdim=True, unbiased=False) + 1e-5).sqrt()
        return self.scale * ((x - mean) / spread) + self.shift


class GeluByHand(nn.Module):
    """GELU by its formula with tanh, of single operators."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the activation."""
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x.pow(3))
        return 0.5 * x * (1 + torch.tanh(inner))


class Mlp(nn.Sequential):
    """Two products with a GELU between."""

    def __init__(self, width: int, inner: int, by_hand: bool = False) -> None:
        act = GeluByHand() if by_hand else nn.GELU()
        super().__init__(nn.Linear(width, inner), act, nn.Linear(inner, width))


class Layer(nn.Module):
    """A layer that normalises first, as in ViT and GPT-2.

    Parameters
    ----------
    shape
        How large.
    dropout
        The share that is dropped.
    by_hand
        Whether norms and activations are made of single operators.
    attention
        What `Attention` takes.
    """

    def __init__(
        self, shape: Shape, dropout: float = 0.0, by_hand: bool = False, **attention: bool
    ) -> None:
        super().__init__()
        norm = NormByHand if by_hand else nn.LayerNorm
        self.norm1, self.norm2 = norm(shape.width), norm(shape.width)
        self.attention = Attention(shape.width, shape.heads, dropout=dropout, **attention)
        self.mlp = Mlp(shape.width, shape.inner, by_hand)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return the tokens after this layer."""
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


# --- Vision transformers (Dosovitskiy et al., 2020; Touvron et al., 2020)


class ViT(nn.Module):
    """A vision transformer for images of 224×224 in patches of 16×16."""

    def __init__(self, shape: Shape, classes: int = 1000, **layer: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, shape.width, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, shape.width))
        self.places = nn.Parameter(torch.zeros(1, 197, shape.width))
        self.layers = nn.Sequential(*(Layer(shape, **layer) for _ in range(shape.depth)))
        self.norm = nn.LayerNorm(shape.width)
        self.classes = nn.Linear(shape.width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes."""
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.classes(self.norm(self.layers(x))[:, 0])


# --- BERT (Devlin et al., 2018)


class BertLayer(nn.Module):
    """A layer that normalises after each half."""

    def __init__(self, shape: Shape, dropout: float, fused: bool) -> None:
        super().__init__()
        self.attention = Attention(
            shape.width, shape.heads, fused=fused, joint=False, dropout=dropout
        )
        self.mlp = Mlp(shape.width, shape.inner)
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the tokens after this layer."""
        x = self.norm1(self.drop(self.attention(x, mask)) + x)
        return self.norm2(self.drop(self.mlp(x)) + x)


class Bert(nn.Module):
    """BERT, with a head or none.

    Parameters
    ----------
    shape
        How large.
    head
        ``"pooler"``; ``"words"``, a score for every word at every place; ``"span"``, two scores at every
        place; or ``""``.
    embedded
        Whether it begins with the embeddings of words; if not, it takes tokens as they are.
    """

    WORDS = 30522

    def __init__(
        self,
        shape: Shape,
        head: str = "pooler",
        fused: bool = False,
        dropout: float = 0.1,
        embedded: bool = True,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(self.WORDS, shape.width) if embedded else None
        if embedded:
            self.places, self.kinds = nn.Embedding(512, shape.width), nn.Embedding(2, shape.width)
            self.norm, self.drop = nn.LayerNorm(shape.width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(shape, dropout, fused) for _ in range(shape.depth))
        self.head = self._head(shape, head)
        self.kind = head

    def _head(self, shape: Shape, head: str) -> nn.Module:
        if head == "pooler":
            return nn.Sequential(nn.Linear(shape.width, shape.width), nn.Tanh())
        if head == "words":
            scores = nn.Linear(shape.width, self.WORDS)
            scores.weight = self.words.weight
            dense = nn.Linear(shape.width, shape.width)
            return nn.Sequential(dense, nn.GELU(), nn.LayerNorm(shape.width), scores)
        return nn.Linear(shape.width, 2) if head == "span" else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the head's scores; ``tokens`` are whole numbers, or vectors where it has no embeddings."""
        device = tokens.device
        x, mask = tokens, None
        if self.words is not None:
            count = tokens.shape[1]
            x = self.words(tokens) + self.kinds(torch.zeros_like(tokens))
            x = self.drop(self.norm(x + self.places(torch.arange(count, device=device))))
        if not self.layers[0].attention.fused:
            mask = torch.zeros(len(x), 1, 1, x.shape[1], dtype=x.dtype, device=device)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, 0] if self.kind == "pooler" else x)


# --- GPT-2 (Radford et al., 2019) and its kin


class Gpt(nn.Module):
    """A language model that normalises first; a token sees only those before it.

    Parameters
    ----------
    shape
        How large.
    words, places
        How many words it knows, and how many tokens it may see.
    tied
        Whether the words' embeddings are also its last product.
    dropout, by_hand, layer
        What `Layer` and `Attention` take.
    again
        Whether the backward pass computes each layer again instead of keeping what it needs.
    """

    def __init__(
        self,
        shape: Shape,
        words: int,
        places: int,
        tied: bool = True,
        dropout: float = 0.0,
        by_hand: bool = False,
        again: bool = False,
        **layer: bool,
    ) -> None:
        super().__init__()
        self.words, self.places = (nn.Embedding(n, shape.width) for n in (words, places))
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()
        self.layers = nn.ModuleList(
            Layer(shape, dropout, by_hand, causal=True, **layer) for _ in range(shape.depth)
        )
        self.norm = (NormByHand if by_hand else nn.LayerNorm)(shape.width)
        self.scores = nn.Linear(shape.width, words, bias=False)
        if tied:
            self.scores.weight = self.words.weight
        self.again = again

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a score for every word at every place."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.words(tokens) + self.places(places))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.scores(self.norm(x))
