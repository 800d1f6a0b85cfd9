"""Known answers to 00.weight_bytes: wrong ones by their diagnosis, right ones by a name."""

from fractions import Fraction

import numpy as np
import torch

WRONG = {
    "returned-nothing": lambda parameters, bits: print(parameters * bits / 8),
    "wrong-type": lambda parameters, bits: f"{parameters * bits // 8} bytes",
}
RIGHT = {
    "by a shift": lambda parameters, bits: parameters * bits >> 3,
    "NumPy's number": lambda parameters, bits: np.int64(parameters) * bits // 8,
    "a tensor": lambda parameters, bits: torch.tensor(parameters * bits / 8, dtype=torch.float64),
    "a fraction": lambda parameters, bits: Fraction(parameters * bits, 8),
}
