"""Known wrong answers to 07.regime, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson07.regime import (
    regime_never_idle,
    regime_swapped,
    regime_waits_first,
    regime_without_launch,
)


def _regime_above(facts):
    if facts.busy > 0.75:
        return "compute" if facts.flop_share >= facts.byte_share else "memory"
    if max(facts.loading, facts.waiting) <= 0.2:
        return "launch"
    return "loader" if facts.loading >= facts.waiting else "synchronisation"


WRONG = {
    "busy-first": regime_waits_first,
    "larger-share": regime_swapped,
    "idle-device": regime_never_idle,
    "no-launch": regime_without_launch,
    "at-least": _regime_above,
}
