"""Known wrong answers to 08.predictions, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson08.predictions import predictions
from course_utils.devices import synchronize


def _predictions_early(model, batches, landing, device):
    start = 0
    for x in batches:
        stop = start + len(x)
        landing[start:stop].copy_(model(x).argmax(1), non_blocking=True)
        start = stop
    return landing[:start].tolist()


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
    "too-early": _predictions_early,
    "waits-each": _predictions_waiting,
    "whole-landing": _predictions_whole,
    "wrong-classes": _predictions_same_place,
}
