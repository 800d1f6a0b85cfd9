"""Known answers to 08.predictions: wrong ones by the diagnosis that each must get, and right ones."""

import torch

from course_lessons.lesson08.predictions import MISTAKES
from course_utils.devices import synchronize


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


def _of_views(model, batches, landing, device):
    places, end = [], len(landing)
    with torch.inference_mode():
        for x in batches:
            place = landing[end - len(x) : end]
            place.copy_(model(x).max(1).indices, non_blocking=True)
            places.append(place)
            end -= len(x)
    synchronize(device)
    return [k for place in places for k in place.numpy()]


def _cloned_too_early(model, batches, landing, device):
    places = []
    for x in batches:
        here = landing[: len(x)]
        here.copy_(model(x).argmax(1), non_blocking=True)
        places.append(here.clone())
    synchronize(device)
    return torch.cat(places).tolist()


WRONG = {
    **MISTAKES,
    "too-early": (
        _cloned_too_early,
        {"synchronize(device)": ""},
        {"synchronize(device)": "", "start = 0": "start = 0\nsynchronize(device)"},
    ),
    "waits-each": (_as_lists, _in_turn, {"synchronize(device)": "    synchronize(device)"}),
    "changed-input": {"start = stop": "start = stop\nx.mul_(2)"},
}
RIGHT = {"one tensor": _from_one_tensor, "pieces": _by_pieces, "views from the end": _of_views}
