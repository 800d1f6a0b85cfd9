"""Known wrong answers to 08.waits, by the diagnosis that each must get."""

from __future__ import annotations

WRONG = {
    "no-copies": 7,
    "no-decisions": 11,
    "no-printing": 13,
    "end-only": 1,
    "too-many": 19,
}
