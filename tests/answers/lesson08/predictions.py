"""Known answers to 08.predictions: wrong ones by the diagnosis that each must get, and right ones."""

from __future__ import annotations

import torch

from course_lessons.lesson08.predictions import predictions
from course_utils.devices import synchronize
from course_utils.exercises.edited import edited


def _as_lists(model, batches, landing, device):
    return [k for x in batches for k in model(x).argmax(1).tolist()]


def _in_turn(model, batches, landing, device):
    found = []
    for x in batches:
        part = landing[: len(x)]
        part.copy_(model(x).argmax(1), non_blocking=True)
        synchronize(device)
        found += part.tolist()
    return found


def _from_one_tensor(model, batches, landing, device):
    return torch.cat([model(x).argmax(1) for x in batches]).tolist()


def _by_pieces(model, batches, landing, device):
    rows = [len(x) for x in batches]
    places = landing[: sum(rows)].split(rows)
    for x, place in zip(batches, places, strict=True):
        place.copy_(torch.argmax(model(x), -1), non_blocking=True)
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return [int(k) for k in landing[: sum(rows)]]


WRONG = {
    "too-early": (
        edited(predictions, {"synchronize(device)": ""}),
        edited(  # waits before the last copy
            predictions,
            {"synchronize(device)": "    if x is batches[-2]:\n        synchronize(device)"},
        ),
    ),
    "waits-each": (
        _as_lists,
        _in_turn,
        edited(predictions, {"synchronize(device)": "    synchronize(device)"}),
    ),
    "whole-landing": edited(predictions, {"landing[:start].tolist": "landing.tolist"}),
    "wrong-classes": edited(predictions, {"landing[start:stop]": "landing[: len(x)]"}),
}
RIGHT = {"one tensor": _from_one_tensor, "pieces": _by_pieces}
