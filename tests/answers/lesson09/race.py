"""Known answers to 09.race."""

from functools import partial

import numpy as np
import torch


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


_MAKE = "a, b = torch.rand(2, n, n, device=device)"
_WORK = "lambda a=a, b=b: a @ b"
WRONG = {
    "not-a-function-timed": {_WORK: "a @ b"},
    "times-copy": {
        _MAKE: "a, b = torch.rand(2, n, n)",
        "a @ b": "a.to(device).double().float() @ b.to(device)",
    },
    "times-creation": {"a @ b": "torch.rand(n, n, device=device) @ torch.rand(n, n, device=device)"},
    "other-device": {_MAKE: "a, b = torch.rand(2, n, n)"},
    "upside-down": {"times[0] / times[1]": "times[1] / times[0]"},
}
RIGHT = {"moved matrices": _moved_matrices, "partial": _in_one_line}
