"""What several checks of this lesson share."""

from __future__ import annotations

from collections.abc import Sequence


def words(sizes: Sequence[int]) -> str:
    return ", ".join(str(size) for size in sizes) or "0"
