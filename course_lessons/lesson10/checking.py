"""Helpers for the check of lesson 10's crops."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from course_language import _
from course_utils.exercises.judge import Judge


class Counter:
    """Counts tensor operations, and those for which a host would have to wait for a GPU."""

    def __init__(self) -> None:
        self.count = self.waits = 0

    def note(self, name: str, result: Any, args: Any) -> None:
        """Count an operation; see `Operations`."""
        self.count += 1
        by_mask = name in ("index", "index_put_", "index_put") and any(
            isinstance(index, Tensor) and index.dtype == torch.bool for index in args[1]
        )
        self.waits += by_mask or name in ("nonzero", "masked_select", "_local_scalar_dense")


def numbered(n: int, height: int, width: int, dtype: torch.dtype) -> Tensor:
    """Return images (n, 3, height, width) with the channels row, column (both from 1 on) and image number."""
    rows = torch.arange(1, height + 1).view(1, -1, 1).expand(n, height, width)
    columns = torch.arange(1, width + 1).view(1, 1, -1).expand(n, height, width)
    number = (torch.arange(n) % 200 + 1).view(-1, 1, 1).expand(n, height, width)
    return torch.stack([rows, columns, number], dim=1).to(dtype)


def candidates(images: Tensor, pad: int) -> Tensor:
    """Return all crops of each image: (offsets, plain and mirrored, n, channels, height, width)."""
    padded = F.pad(images, (pad, pad, pad, pad))
    height, width = images.shape[2:]
    cuts = [
        padded[:, :, top : top + height, left : left + width]
        for top in range(2 * pad + 1)
        for left in range(2 * pad + 1)
    ]
    return torch.stack([torch.stack([cut, cut.flip(3)]) for cut in cuts])


def find_crops(crops: Tensor, got: Tensor, judge: Judge) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each image its offset down, its offset to the right, and whether it is mirrored.

    ``crops`` are all possible crops of the images. Refuses an image that is none of them.
    """
    hits = (crops == got).flatten(3).all(3).flatten(0, 1)
    for first in (~hits.any(0)).nonzero().flatten().tolist():
        seen = _("image {first}: {got} (rows and columns, numbered from 1)").format(
            first=first, got=got[first, :2].tolist()
        )
        judge.no(seen=seen, expected=_("a window of the image with a border of zeros"))
    which = hits.float().argmax(0)
    side = math.isqrt(len(crops))
    return which // 2 // side, which // 2 % side, which % 2 == 1
