"""Known wrong answers to 08.predictions, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.predictions import predictions
from course_utils.devices import synchronize
from course_utils.exercises.edited import edited


def _predictions_waiting(model, batches, landing, device):
    return [k for x in batches for k in model(x).argmax(1).tolist()]


def _predictions_same_place(model, batches, landing, device):
    for x in batches:
        landing[: len(x)].copy_(model(x).argmax(1), non_blocking=True)
    synchronize(device)
    return landing[: sum(map(len, batches))].tolist()


def _predictions_whole(model, batches, landing, device):
    predictions(model, batches, landing, device)
    return landing.tolist()


WRONG = {
    "too-early": edited(predictions, {"synchronize(device)": ""}),
    "waits-each": _predictions_waiting,
    "whole-landing": _predictions_whole,
    "wrong-classes": _predictions_same_place,
}
