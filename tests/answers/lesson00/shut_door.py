"""Known wrong answers to 00.shut_door, by the diagnosis that each must get."""

from __future__ import annotations

WRONG = {
    "driver-is-there": {"A": 2, "B": 3, "C": 2, "D": 5},
    "first-shut-door": {"A": 1, "B": 4, "C": 2, "D": 5},
    "no-card": {"A": 1, "B": 3, "C": 1, "D": 5},
    "emulated": {"A": 1, "B": 3, "C": 2, "D": 4},
    "four-keys": {"A": 1},
    "door-numbers": {"A": 1, "B": 3, "C": 2, "D": 6},
}
