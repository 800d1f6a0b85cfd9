"""Known answers to 01.smallest_winner that its check's known mistakes are not."""

import numpy as np
import torch

WRONG = {
    "wrong-type": {"return n": "return device"},
}


def _times(n, cpu_flops, device_flops, launch_seconds, bus_bytes):
    return launch_seconds + 12 * n**2 / bus_bytes + 2 * n**3 / device_flops, 2 * n**3 / cpu_flops


def _by_numpy(sizes, *rates):
    device, cpu = _times(np.array(sizes, dtype=np.float64), *rates)
    return np.array(sizes)[np.argmax(device < cpu)] if (device < cpu).any() else None


def _by_torch(sizes, *rates):
    device, cpu = _times(torch.tensor(sizes, dtype=torch.float64), *rates)
    winners = (device < cpu).nonzero()
    return sizes[winners[0]] if len(winners) else None


def _by_difference(sizes, cpu_flops, device_flops, launch_seconds, bus_bytes):
    for n in sizes:
        work, matrix = 2 * n**3, 4 * n**2 / bus_bytes
        if work / cpu_flops - work / device_flops > launch_seconds + 2 * matrix + matrix:
            return n


RIGHT = {"by NumPy": _by_numpy, "by torch": _by_torch, "by difference": _by_difference}
