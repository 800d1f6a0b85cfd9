"""Known answers to 01.intensity: wrong ones by their diagnosis, right ones by a name."""

import numpy as np
import torch

RIGHT = {
    "one over each side": lambda n, k, m, size: 2 / (size * (1 / m + 1 / n + 1 / k)),
    "NumPy's number": lambda n, k, m, size: np.float32(2 * n * k * m) / np.sum([n * k, k * m, n * m]) / size,
    "a tensor": lambda n, k, m, size: torch.tensor(2.0 * n * k * m) / (size * (n * k + k * m + n * m)),
}
