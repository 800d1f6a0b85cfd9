"""Known answers to 01.speedup: wrong ones by their diagnosis, right ones by a name."""

from fractions import Fraction

import numpy as np
import torch

WRONG = {"wrong-type": lambda cpu, device: f"{cpu / device}x"}
RIGHT = {
    "rates": lambda cpu, device: (1 / device) / (1 / cpu),
    "NumPy's number": lambda cpu, device: np.float32(cpu) / device,
    "a tensor": lambda cpu, device: torch.tensor(cpu) / device,
    "a fraction": lambda cpu, device: Fraction(cpu) / Fraction(device),
}
