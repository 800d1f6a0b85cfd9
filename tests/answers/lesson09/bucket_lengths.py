"""Known answers to 09.bucket_lengths."""

import itertools

import numpy as np


def _by_trying(lengths, per_shape, per_token):
    """Try all choices of lengths."""
    *shorter, longest = sorted(set(lengths)) or [None]
    if longest is None:
        return []
    best = None
    for count in range(len(shorter) + 1):
        for some in itertools.combinations(shorter, count):
            chosen = [*some, longest]
            padded = sum(min(b for b in chosen if b >= n) for n in lengths)
            costs = per_shape * len(chosen) + per_token * padded
            if best is None or costs < best[0]:
                best = costs, chosen
    return best[1]


RIGHT = {"by trying": _by_trying, "a tuple": lambda *case: tuple(map(np.int64, _by_trying(*case)))}
