"""Known answers to 08.waits: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

WRONG = {
    "no-copies": 7,
    "no-decisions": 11,
    "no-printing": 13,
    "no-end": 14,
    "end-only": 1,
    "all-prints": 17,
    "too-many": 19,
    "wrong-count": 100,
}
RIGHT = {"as a float": 15.0}
