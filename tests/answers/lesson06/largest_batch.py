"""Known wrong answers to 06.largest_batch."""

import gc

import torch

from course_lessons.lesson06.largest_batch import TWINS, largest_batch
from course_lessons.shared.edited import edited


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


def _largest_in_the_block(works, start=1, limit=None):
    try:
        works(start)
    except torch.OutOfMemoryError:
        gc.collect()
        return largest_batch(works, 1, start - 1)
    gc.collect()
    return largest_batch(works, start, limit)


WRONG = {
    "swallows": {"torch.OutOfMemoryError": "RuntimeError"},
    **TWINS,
    "not-collected": {"gc.collect()": ""},
    "held-by-error": (
        edited(
            largest_batch,
            {"OutOfMemoryError:": "OutOfMemoryError as error:\n    kept.append(error)"},
            kept=[],
        ),
        _largest_in_the_block,
    ),
    "result-kept": edited(largest_batch, {"works(batch)": "kept.append(works(batch))"}, kept=[]),
    "not-caught": lambda works, start=1, limit=None: works(start + 1000) or start,
    "only-doubled": (TWINS["only-doubled"], _largest_by_doubling),
    "wrong-batch": {"return good": "return 2 * good"},
    "not-doubling": {"2 * batch": "3 * batch"},
    "defaults": {"start=1": "start=2"},
    "no-batch": {"batch = start": "batch = 0"},
    "twice": {"min(bad, batch)": "min(bad, batch + 1)"},
    "too-many": ({"(good + bad) // 2": "good + max(1, (bad - good) // 5)"}, _largest_by_ones),
    "over-limit": _largest_past_the_limit,
}
RIGHT = {"rounded up": {"(good + bad) // 2": "(good + bad + 1) // 2"}}
