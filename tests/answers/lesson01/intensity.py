"""Known wrong answers to 01.intensity, by the diagnosis that each must get."""

from __future__ import annotations

from collections.abc import Callable


def _with(formula: Callable[[int, int, int, int], float]) -> Callable[..., float]:
    def intensity(n, k, m, bytes_per_number):
        return formula(n, k, m, bytes_per_number)

    return intensity


WRONG = {
    "one-flop": _with(lambda n, k, m, b: n * k * m / ((n * k + k * m + n * m) * b)),
    "no-output": _with(lambda n, k, m, b: 2 * n * k * m / ((n * k + k * m) * b)),
    "numbers-not-bytes": _with(lambda n, k, m, b: 2 * n * k * m / (n * k + k * m + n * m)),
    "every-use-fetched": _with(lambda n, k, m, b: 2 * n * k * m / (2 * n * k * m * b)),
    "always-4-bytes": _with(lambda n, k, m, b: n * k * m / (n * k + k * m + n * m) / 2),
    "upside-down": _with(lambda n, k, m, b: (n * k + k * m + n * m) * b / (2 * n * k * m)),
    "only-flops": _with(lambda n, k, m, b: 2 * n * k * m),
    "one-addition-less": _with(
        lambda n, k, m, b: n * m * (2 * k - 1) / ((n * k + k * m + n * m) * b)
    ),
    "only-square": _with(lambda n, k, m, b: 2 * n**3 / (3 * n**2 * b)),
    "bits": _with(lambda n, k, m, b: 2 * n * k * m / ((n * k + k * m + n * m) * b * 8)),
    "other-count": _with(lambda n, k, m, b: 2 * n * k * m / (n * k * b)),
}
