"""Known answers to 02.one_step_bytes: wrong ones by their diagnosis, right ones by a name."""

import numpy as np

WRONG = {
    "floats": (4 * (79_510 + 64 * 784) + 512, 4),
    "short-labels": (4 * 79_510 + 64 * 784 + 256, 4),
    "no-model": (64 * 784 + 512, 4),
    "nothing-back": (368_728, 0),
    "gradients-back": (4 * 79_510 + 64 * 784 + 512, 4 * 79_510 + 4),
}
RIGHT = {"a list": [368_728, 4], "an array": np.array([368_728, 4])}
