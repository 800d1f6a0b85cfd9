"""Known answers to 01.speedup that its check's known mistakes are not."""

from fractions import Fraction

import numpy as np
import torch

WRONG = {
    "wrong-type": lambda cpu_seconds, device_seconds: f"{cpu_seconds / device_seconds}x",
}
RIGHT = {
    "rates": lambda cpu_seconds, device_seconds: (1 / device_seconds) / (1 / cpu_seconds),
    "NumPy's number": lambda cpu_seconds, device_seconds: np.float32(cpu_seconds) / device_seconds,
    "a tensor": lambda cpu_seconds, device_seconds: torch.tensor(cpu_seconds) / device_seconds,
    "a fraction": lambda cpu_seconds, device_seconds: (
        Fraction(cpu_seconds) / Fraction(device_seconds)
    ),
}
