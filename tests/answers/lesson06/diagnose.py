"""Known wrong answers to 06.diagnose, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson06.diagnose import diagnose
from course_utils import memory


def _diagnose_by_advice(message):
    return "fragmented" if "expandable_segments" in message else "too large"


def _diagnose_by_free(message):
    found = memory.figures(message)
    others = found["capacity"] - found["free"] - found["process"]
    if found["requested"] <= found["free"]:
        return "fragmented"
    return "someone else" if found["requested"] <= found["free"] + others else "too large"


def _diagnose_without_others(message):
    found = memory.figures(message)
    fits = found["requested"] <= found["free"] + found["unallocated"]
    return "fragmented" if fits else "too large"


def _diagnose_any_others(message):
    return "someone else" if "Process" in message else diagnose(message)


def _diagnose_others_always(message):
    right = diagnose(message)
    blame = right == "too large" and "Process" in message
    return "someone else" if blame else right


WRONG = {
    "not-enough": _diagnose_by_advice,
    "enough-in-pieces": _diagnose_by_free,
    "others-missed": _diagnose_without_others,
    "not-their-fault": _diagnose_any_others,
    "would-not-help": _diagnose_others_always,
}
