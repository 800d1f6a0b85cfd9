"""Known answers to 01.least_seconds: wrong ones by their diagnosis, right ones by a name."""

import numpy as np
import torch

_RETURNED = "return max(compute, memory), limit"
WRONG = {
    "wrong-type": {_RETURNED: "return {'compute': compute, 'memory': memory}"},
    "added": {_RETURNED: "return compute + memory, limit", "compute > memory": "compute < memory"},
}


def _by_torch(flops, bytes_moved, peak_flops, bandwidth):
    times = torch.tensor([flops / peak_flops, bytes_moved / bandwidth], dtype=torch.float64)
    longest, which = times.max(0)
    return [longest, ("compute", "memory")[which]]


def _by_numpy(flops, bytes_moved, peak_flops, bandwidth):
    times = np.array([flops / peak_flops, bytes_moved / bandwidth], dtype=np.float32)
    return times.max(), np.array(["compute", "memory"])[times.argmax()]


RIGHT = {
    "by torch": _by_torch,
    "by NumPy": _by_numpy,
    "the ridge": lambda flops, moved, peak, bandwidth: (
        (flops / peak, "compute") if flops / moved >= peak / bandwidth else (moved / bandwidth, "memory")
    ),
}
