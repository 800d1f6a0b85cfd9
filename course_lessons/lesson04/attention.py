"""Which of PyTorch's ways to compute attention takes a format."""

from __future__ import annotations

import warnings

import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

WAYS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION", "MATH")
"""The fused ones, and the two products with a softmax between them."""


def takes(way: str, query: torch.Tensor) -> bool:
    """Whether one way, and no other, can compute attention of ``query`` with itself.

    Parameters
    ----------
    way
        One of `WAYS`.
    query
        Of shape (batch, heads, tokens, numbers a head).
    """
    with warnings.catch_warnings(), sdpa_kernel(getattr(SDPBackend, way)):
        warnings.simplefilter("ignore")  # on CUDA the reasons come as warnings
        try:
            F.scaled_dot_product_attention(query, query, query)
        except RuntimeError:
            return False
    return True
