"""Known answers to 02.one_step_bytes: wrong ones by the diagnosis that each must get, right ones by a name."""

from __future__ import annotations

WRONG = {
    "floats": (4 * (79_510 + 64 * 784) + 512, 4),
    "short-labels": (4 * 79_510 + 64 * 784 + 256, 4),
    "no-biases": (4 * 79_400 + 64 * 784 + 512, 4),
    "no-model": (64 * 784 + 512, 4),
    "gradients": (8 * 79_510 + 64 * 784 + 512, 4),
    "noise": (4 * 79_510 + 5 * 64 * 784 + 512, 4),
    "numbers": (79_510 + 64 * 784 + 64, 1),
    "gradients-back": (4 * 79_510 + 64 * 784 + 512, 4 * 79_510 + 4),
    "to-host": (4 * 79_510 + 64 * 784 + 512, 0),
}
RIGHT = {"a list": [368_728, 4]}
