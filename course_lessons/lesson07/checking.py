"""Helpers for the checks of lesson 07."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import LiveTensors


class Block(nn.Module):
    """A residual block, ``width`` features outside and ``inner`` inside: norm, linear, GELU, dropout, linear.

    Its activations are added to ``watch``, and each call appends to ``calls``, unless these are None.
    """

    def __init__(self, width: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.dropout = dropout
        self.watch: LiveTensors | None = None
        self.calls: list[int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the block's output."""
        if self.calls is not None:
            self.calls.append(1)
        normed = self.norm(x)
        raised = self.up(normed)
        bent = F.gelu(raised)
        kept = F.dropout(bent, self.dropout, self.training) if self.dropout else bent
        if self.watch is not None:
            self.watch.add(normed, raised, bent, kept)
        return x + self.down(kept)


class _Activations(list):
    """Stands for memory; a subclass, because a plain list does not support weak references."""


class Card:
    """A fake GPU with memory for a batch of ``most``; records batches tried, and memory kept alive.

    Like a real training, a try holds memory in its frame, in a reference cycle, and in its result.
    ``left_over`` has the diagnoses of those that were still alive at the next try.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tried: list[int] = []
        self.left_over: set[str] = set()
        self._held: dict[str, weakref.ref[Any]] = {}

    def works(self, batch: int) -> Any:
        """Pretend to train with a batch; return a result, or raise ``torch.OutOfMemoryError``."""
        self.tried.append(batch)
        self.left_over |= {name for name, ref in self._held.items() if ref() is not None}
        if len(self.tried) > 200:
            raise RuntimeError(_("more than 200 tries"))
        activations, cycle, result = _Activations(), _Activations(), _Activations()
        cycle.append(cycle)
        parts = {"result-kept": result, "held-by-error": activations, "not-collected": cycle}
        self._held = {name: weakref.ref(part) for name, part in parts.items()}
        del parts
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(_("works({batch!r}): a batch is a whole number from 1 on").format(batch=batch))
        if batch > self.most:
            del result
            raise torch.OutOfMemoryError("CUDA out of memory. (a make-believe card)")
        return result
