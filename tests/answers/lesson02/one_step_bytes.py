"""Known answers to 02.one_step_bytes: wrong ones by the diagnosis that each must get, right ones by a name."""

import numpy as np

WRONG = {
    "floats": (4 * (79_510 + 64 * 784) + 512, 4),
    "short-labels": (4 * 79_510 + 64 * 784 + 256, 4),
    "no-biases": (4 * 79_400 + 64 * 784 + 512, 4),
    "no-model": (64 * 784 + 512, 4),
    "doubled": (8 * 79_510 + 64 * 784 + 512, 4),
    "swapped": (4, 4 * (79_510 + 64 * 784) + 512),  # and floats
    "total": (368_732, 4),
    "eight-bytes": (4 * 79_510 + 8 * 64 * 784 + 512, 4),
    "no-images": (4 * 79_510 + 512, 4),
    "no-labels": (4 * 79_510 + 64 * 784, 4),
    "byte-labels": (4 * 79_510 + 64 * 784 + 64, 4),
    "pair": (4 * 79_510, 64 * 784, 512),
    "to-device": (1, 4),
    "kilobytes": (368.728, 0.004),
    "one-layer": (4 * 78_500 + 64 * 784 + 512, 4),
    "one-image": (4 * 79_510 + 784 + 8, 4),
    "nothing-back": (368_728, 0),
    "wide-loss": (368_728, 8),
    "logits-back": (368_728, 2560),
    "losses-back": (368_728, 256),
    "one-number": (368_728, 1),
    "noise": (4 * 79_510 + 5 * 64 * 784 + 512, 4),
    "numbers": (79_510 + 64 * 784 + 64, 1),
    "gradients-back": (4 * 79_510 + 64 * 784 + 512, 4 * 79_510 + 4),
    "to-host": (368_728, 368_728),
}
RIGHT = {"a list": [368_728, 4], "an array": np.array([368_728, 4])}
