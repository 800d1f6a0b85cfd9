"""Known wrong answers to 06.largest_batch."""

from __future__ import annotations

import gc

import torch

from course_lessons.lesson06.largest_batch import largest_batch
from course_utils.exercises.edited import edited


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
    "swallows": edited(largest_batch, {"torch.OutOfMemoryError": "RuntimeError"}),
    "not-freed": edited(largest_batch, {"gc.collect()": ""}),
    "wrong-batch": _largest_by_doubling,
    "too-many": (
        _largest_by_ones,
        edited(largest_batch, {"min(bad, batch)": "min(bad, batch + 1)"}),
    ),
    "over-limit": _largest_past_the_limit,
}
