"""Known wrong answers to 08.as_numpy, by the diagnosis that each must get."""

from __future__ import annotations

import numpy as np
import torch


def _numpy_float(tensor):
    host = tensor.detach().cpu()
    return host.numpy() if host.dtype == torch.float64 else host.float().numpy()


def _numpy_float32(tensor):
    host = tensor.detach().cpu()
    return (host.float() if host.is_floating_point() else host).numpy()


def _numpy_half(tensor):
    host = tensor.detach().cpu()
    return (host.half() if host.dtype == torch.bfloat16 else host).numpy()


def _numpy_lists(tensor):
    return np.array(tensor.tolist())


def _numpy_not(tensor):
    return tensor.detach().cpu().float()


WRONG = {
    "not-float": _numpy_float,
    "loses-digits": _numpy_float32,
    "overflow": _numpy_half,
    "through-lists": _numpy_lists,
    "still-a-tensor": _numpy_not,
}
