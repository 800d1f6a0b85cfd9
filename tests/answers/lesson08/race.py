"""Known answers to 08.race: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

import torch

from course_lessons.lesson08.race import race
from course_utils.exercises.edited import edited


def _moved_matrices(sizes, devices, measure):
    def seconds(n, device):
        a, b = torch.randn(n, n).to(device), torch.randn(n, n).to(device)

        def product():
            torch.mm(a, b)

        return measure(product, "product", device=device).median

    found = []
    for n in sizes:
        first, second = seconds(n, devices[0]), seconds(n, devices[1])
        found.append([n, first, second, first / second])
    return found


_MAKE = "a, b = torch.rand(2, n, n, device=device)"
_WORK = "lambda a=a, b=b: a @ b"
_ROW = "rows.append((n, *times, times[0] / times[1]))"
WRONG = {
    "not-a-function-timed": edited(race, {_WORK: "a @ b"}),
    "no-product": edited(race, {"a @ b": "a * b"}),
    "times-copy": edited(
        race,
        {
            _MAKE: "a, b = torch.rand(2, n, n)",
            "a @ b": "a.to(device).double().float() @ b.to(device)",
        },
    ),
    "times-creation": edited(
        race, {"a @ b": "torch.rand(n, n, device=device) @ torch.rand(n, n, device=device)"}
    ),
    "other-device": edited(race, {_MAKE: "a, b = torch.rand(2, n, n)"}),
    "whole-measurement": edited(
        race, {".median": "", "times[0] / times[1]": "times[0].median / times[1].median"}
    ),
    "upside-down": edited(race, {"times[0] / times[1]": "times[1] / times[0]"}),
    "swapped": edited(race, {"in devices": "in reversed(devices)"}),
    "difference": edited(race, {"times[0] / times[1]": "times[0] - times[1]"}),
    "rows": edited(race, {"n, *times, ": "n, "}),
}
RIGHT = {"moved matrices": _moved_matrices}
