"""What several checks of this lesson share."""

from __future__ import annotations


def near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b)) + 1e-9
