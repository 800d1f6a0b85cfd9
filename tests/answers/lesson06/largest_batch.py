"""Known wrong answers to 06.largest_batch, by the diagnosis that each must get."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import torch

from course_lessons.lesson06.largest_batch import largest_batch


def _search(fits: Callable[[Callable[..., Any], int], bool]) -> Callable[..., Any]:
    """Return a search that asks in another way whether a batch fits."""

    def largest_batch(works, start=1, limit=None):
        good, bad = 0, math.inf if limit is None else limit + 1
        batch = start
        while batch < bad and fits(works, batch):
            good, batch = batch, 2 * batch
        bad = min(bad, batch)
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(works, middle) else (good, middle)
        return good

    return largest_batch


def _fits_any_error(works, batch):
    try:
        works(batch)
    except RuntimeError:
        return False
    finally:
        gc.collect()
    return True


def _fits_without_collecting(works, batch):
    try:
        works(batch)
    except torch.OutOfMemoryError:
        return False
    return True


def _largest_by_doubling(works, start=1, limit=None):
    batch = 0
    try:
        while limit is None or max(2 * batch, start) <= limit:
            following = max(2 * batch, start)
            works(following)
            batch = following
            gc.collect()
    except torch.OutOfMemoryError:
        return batch
    return batch


def _largest_by_ones(works, start=1, limit=None):
    batch = 0
    while limit is None or batch < limit:
        try:
            works(batch + 1)
        except torch.OutOfMemoryError:
            break
        batch += 1
        gc.collect()
    return batch


def _largest_past_the_limit(works, start=1, limit=None):
    found = largest_batch(works, start)
    return found if limit is None else min(found, limit)


WRONG = {
    "swallows": _search(_fits_any_error),
    "not-freed": _search(_fits_without_collecting),
    "wrong-batch": _largest_by_doubling,
    "too-many": _largest_by_ones,
    "over-limit": _largest_past_the_limit,
}
