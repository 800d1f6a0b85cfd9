"""Known answers to 08.bucket_lengths."""

from __future__ import annotations

import itertools
import math

from course_lessons.lesson08.bucket_lengths import bucket_lengths


def _longest(lengths, per_shape, per_token):
    return [max(lengths)] if lengths and per_shape else sorted(set(lengths))


def _of_two(lengths, per_shape, per_token):
    return sorted({2 ** math.ceil(math.log2(n)) for n in lengths})


def _one_by_one(lengths, per_shape, per_token):
    def costs(chosen):
        padded = sum(min(b for b in chosen if b >= n) for n in lengths)
        return per_shape * len(chosen) + per_token * padded

    chosen = {max(lengths)} if lengths else set()
    while others := set(lengths) - chosen:
        best = min(others, key=lambda n: costs(chosen | {n}))
        if costs(chosen | {best}) >= costs(chosen):
            break
        chosen.add(best)
    return sorted(chosen)


def _by_trying(lengths, per_shape, per_token):
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


WRONG = {
    "every-length": lambda lengths, *costs: sorted(set(lengths)),
    "one-length": _longest,
    "needless": _of_two,
    "not-least": (lambda lengths, *costs: bucket_lengths(set(lengths), *costs), _one_by_one),
    "too-short": lambda lengths, *costs: bucket_lengths(sorted(lengths)[:-1], *costs),
    "none": lambda lengths, *costs: bucket_lengths(lengths or [1], *costs),
}
RIGHT = {"by trying": _by_trying}
