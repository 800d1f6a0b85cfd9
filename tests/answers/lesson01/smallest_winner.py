"""Known answers to 01.smallest_winner: wrong ones by their diagnosis, right ones by a name."""

import numpy as np
import torch

WRONG = {"wrong-type": {"return n": "return device"}}


def _device_and_cpu_seconds(n, cpu_flops, device_flops, launch_seconds, bus_bytes):
    """Return the seconds on the device and on the CPU, for one size or an array of them."""
    return launch_seconds + 12 * n**2 / bus_bytes + 2 * n**3 / device_flops, 2 * n**3 / cpu_flops


def _by_numpy(sizes, *rates):
    device, cpu = _device_and_cpu_seconds(np.array(sizes, dtype=np.float64), *rates)
    return np.array(sizes)[np.argmax(device < cpu)] if (device < cpu).any() else None


def _by_torch(sizes, *rates):
    device, cpu = _device_and_cpu_seconds(torch.tensor(sizes, dtype=torch.float64), *rates)
    winners = (device < cpu).nonzero()
    return sizes[winners[0]] if len(winners) else None


RIGHT = {
    "by NumPy": _by_numpy,
    "by torch": _by_torch,
    "by difference": {
        "device = launch_seconds + transfers + 2 * n**3 / device_flops": "",
        "device < cpu": "cpu - 2 * n**3 / device_flops > launch_seconds + transfers",
    },
}
