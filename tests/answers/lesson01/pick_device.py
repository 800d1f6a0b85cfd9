"""Known wrong answers to 01.pick_device, by the diagnosis that each must get."""

from __future__ import annotations


def _pick_trusts(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available:
            return kind
    return "cpu"


def _pick_gives_up(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available:
            return kind if works(kind) else "cpu"
    return "cpu"


def _pick_no_fallback(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if kind in available and works(kind):
            return kind
    return None


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


def _pick_tries_all(available, works):
    for kind in ("cuda", "xpu", "mps"):
        if works(kind) and kind in available:
            return kind
    return "cpu"


WRONG = {
    "available-is-not-works": _pick_trusts,
    "gave-up": _pick_gives_up,
    "no-fallback": _pick_no_fallback,
    "forgot-a-kind": _pick_two_kinds,
    "not-there": _pick_without_asking,
    "order": _pick_any_order,
    "tried-an-absent-device": _pick_tries_all,
}
