"""Known answers to 08.race: wrong ones by the diagnosis that each must get, and a right one."""

from functools import partial

import numpy as np
import torch

from course_lessons.lesson08.race import race
from course_lessons.shared.edited import edited
from course_utils.devices import synchronize


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


def _in_one_line(sizes, devices, measure):
    def seconds(n, device):
        made = [torch.rand(n, n, device=torch.device(device)) for _ in range(2)]
        return measure(partial(torch.matmul, *made), device=torch.device(device)).median

    rows = [(n, *(seconds(n, device) for device in devices)) for n in sizes]
    return [(*row, np.float64(row[1] / row[2])) for row in rows]


def _a_list_a_device(sizes, devices, measure):
    times = {
        device: [
            measure(partial(torch.mm, *torch.rand(2, n, n, device=device)), device=device)
            for n in sizes
        ]
        for device in devices
    }
    pairs = zip(sizes, *times.values(), strict=False)
    return [(n, a.median, b.median, a.median / b.median) for n, a, b in pairs]


_MAKE = "a, b = torch.rand(2, n, n, device=device)"
_WORK = "lambda a=a, b=b: a @ b"
WRONG = {
    "not-a-function-timed": {_WORK: "a @ b"},
    "no-product": {"a @ b": "a * b"},
    "times-copy": {
        _MAKE: "a, b = torch.rand(2, n, n)",
        "a @ b": "a.to(device).double().float() @ b.to(device)",
    },
    "times-creation": {
        "a @ b": "torch.rand(n, n, device=device) @ torch.rand(n, n, device=device)"
    },
    "other-device": {_MAKE: "a, b = torch.rand(2, n, n)"},
    "whole-measurement": {
        ".median": "",
        "times[0] / times[1]": "times[0].median / times[1].median",
    },
    "upside-down": {"times[0] / times[1]": "times[1] / times[0]"},
    "swapped": {"in devices": "in reversed(devices)"},
    "difference": {"times[0] / times[1]": "times[0] - times[1]"},
    "rows": ({"n, *times, ": "n, "}, {"return rows": "    return rows"}),
    "times-more": {"a @ b,": "(a @ b).sum(),"},
    "times-wait": edited(
        race,
        {_WORK: "lambda a=a, b=b, device=device: [a @ b, synchronize(device)]"},
        synchronize=synchronize,
    ),
    "other-dtype": {_MAKE: f"{_MAKE}.double()"},
    "other-product": {_MAKE: "a, b = torch.rand(2, n + 1, n + 1, device=device)"},
    "one-matrix": {"a @ b,": "a @ a,"},
    "not-random": {"torch.rand": "torch.zeros"},
    "not-measured": {"in devices": "in (devices[0], devices[0])"},
    "twice-through": _a_list_a_device,
    "share": {"times[0] / times[1]": "times[0] / times[1] - 1"},
    "other-unit": {").median": ").median * 1e3"},
    "rounded": {"times[0] / times[1]": "round(times[0] / times[1], 2)"},
    "wrong-row": {").median": ").q1"},
}
RIGHT = {"moved matrices": _moved_matrices, "partial": _in_one_line}
