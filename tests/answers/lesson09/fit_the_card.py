"""Known answers to 09.fit_the_card."""

import numpy as np


def _by_divisors(capacity, batch, formats):
    found = {}
    for name, (fixed, per_sample, per_part, seconds) in formats.items():
        rows = batch
        while rows and (batch % rows or fixed + rows * per_sample > capacity * 9 / 10):
            rows -= 1
        if rows:
            found[name, rows, batch // rows] = batch // rows * per_part + batch * seconds
    return min(found, key=found.get, default=None)


def _by_arrays(capacity, batch, formats):
    sizes = np.array([n for n in range(1, batch + 1) if batch % n == 0])
    found = []
    for name, (fixed, row, part, sample) in formats.items():
        fits = sizes[fixed + row * sizes <= capacity - capacity / 10]
        if len(fits):
            parts = batch // fits.max()
            found.append((parts * part + batch * sample, [name, fits.max(), parts]))
    return min(found)[1] if found else None


RIGHT = {"by divisors": _by_divisors, "by arrays": _by_arrays}
