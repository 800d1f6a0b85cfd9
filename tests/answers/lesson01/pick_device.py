"""Known wrong answers to 01.pick_device, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson01.pick_device import pick_device
from course_utils.exercises.edited import edited


def _pick_gives_up(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available:
            return kind if works(kind) else "cpu"
    return "cpu"


def _pick_two_kinds(available, works):
    if "cuda" in available and works("cuda"):
        return "cuda"
    return "cpu"


def _pick_without_asking(available, works):
    return "cuda"


def _pick_any_order(available, works):
    for kind in available:
        if works(kind):
            return kind
    return "cpu"


WRONG = {
    "available-is-not-works": edited(pick_device, {"available and works(kind)": "available"}),
    "gave-up": _pick_gives_up,
    "no-fallback": edited(pick_device, {'return "cpu"': "return None"}),
    "forgot-a-kind": _pick_two_kinds,
    "not-there": _pick_without_asking,
    "order": _pick_any_order,
    "tried-an-absent-device": edited(
        pick_device, {"kind in available and works(kind)": "works(kind) and kind in available"}
    ),
}
