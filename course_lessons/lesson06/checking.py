"""What several checks of this lesson share."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import Alive


class Block(nn.Module):
    """A residual block: norm, up, GELU, dropout, down. It shows what it makes to ``watch``, and counts in ``calls``.

    Parameters
    ----------
    width, inner
        Features outside and inside.
    dropout
        The share of the inner features that is dropped.
    """

    def __init__(self, width: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width)
        self.dropout = dropout
        self.watch: Alive | None = None
        self.calls: list[int] | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` and what the block adds to it."""
        if self.calls is not None:
            self.calls.append(1)
        normed = self.norm(x)
        raised = self.up(normed)
        bent = F.gelu(raised)
        kept = F.dropout(bent, self.dropout, self.training) if self.dropout else bent
        if self.watch is not None:
            self.watch.add(normed, raised, bent, kept)
        return x + self.down(kept)


ROWS, WIDTH, INNER, BLOCKS = 32_768, 64, 256, 10
"""The batch and the network of 06.frugal_step."""


def challenge_model(width: int = WIDTH, inner: int = INNER, blocks: int = BLOCKS) -> nn.Sequential:
    """Return the network of 06.frugal_step: residual blocks and a head for ten classes."""
    return nn.Sequential(*(Block(width, inner) for _ in range(blocks)), nn.Linear(width, 10))
