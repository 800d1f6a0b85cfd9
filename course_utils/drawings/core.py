"""What the drawings of several lessons share."""

from __future__ import annotations

from ..plots import COLOURS

BLUE, ORANGE, GREEN = COLOURS[:3]
