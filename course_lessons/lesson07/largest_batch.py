"""A search that survives running out of memory."""

import gc
import math

import torch

from course_language import _
from course_lessons.shared.checking import fast_gc
from course_utils.exercises import Exercise
from course_utils.exercises.judge import Raised

from .checking import Card


def largest_batch(works, start=1, limit=None):
    def fits(batch):
        try:
            works(batch)
            fine = True
        except torch.OutOfMemoryError:
            fine = False
        gc.collect()
        return fine

    good, bad = 0, math.inf if limit is None else limit + 1
    batch = start
    while batch < bad and fits(batch):
        good, batch = batch, 2 * batch
    bad = min(bad, batch)
    while bad - good > 1:
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


_SEARCHES = (  # the largest batch that fits, start, limit
    *((37, 1, None), (1000, 1, None), (64, 1, None), (9, 32, None), (63, 8, None), (5, 16, None)),
    *((1, 1, None), (0, 1, None), (0, 4, None)),
    *((500, 1, 100), (70, 1, 100), (500, 1, 64), (500, 3, 48), (30, 64, 40), (1, 1, 1)),
)


@fast_gc()
def _check_answer(answer, judge):
    """Check the searches, the default arguments, and that other errors than OutOfMemoryError are raised."""
    for search in _SEARCHES:
        _check_search(answer, judge, *search)
    card = Card(11)
    judge.expect(_("largest batch where 11 fit"), answer(card.works), 11)
    judge.expect(_("first tries where no start is given"), card.tried[:2], [1, 2])
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("labels")):

        def works(batch, error=error):
            if batch > 3:
                raise error

        try:
            got = answer(works, 1, 50)
        except Raised as raised:
            if raised.error is not error:
                raise
        else:
            seen = _("{got!r}, although works raised {error!r}").format(got=got, error=error)
            judge.no("swallows", seen=seen, expected=repr(error))


def _check_search(answer, judge, most, start, limit):
    """Check one search on a card on which ``most`` samples fit: result, memory left over, batches tried."""
    card = Card(most)
    where = _("start={start}, limit={limit}, {most} fit").format(start=start, limit=limit, most=most)
    try:
        got = answer(card.works, start, limit)
    except Raised as raised:
        if not isinstance(raised.error, torch.OutOfMemoryError):
            raise
        seen = _("OutOfMemoryError, {where}").format(where=where)
        judge.no("not-caught", seen=seen, expected=_("a number"))
    for diagnosis in ("result-kept", "held-by-error", "not-collected"):
        if diagnosis in card.left_over:
            seen = _("still there at the next try, {where}").format(where=where)
            judge.no(diagnosis, seen=seen, expected=_("nothing of the try before"))
    largest = judge.number(got), min(most, limit or most)
    judge.expect(_("largest batch, {where}").format(where=where), *(f"{value:g}" for value in largest))
    limit = limit or math.inf
    doubled, batch = [], start
    while batch <= limit and (not doubled or doubled[-1] <= most):
        doubled.append(batch)
        batch *= 2
    tried = card.tried
    judge.expect(_("first tries, {where}").format(where=where), tried[: len(doubled)], doubled)
    wasted = [b for i, b in enumerate(tried) if b in tried[:i] or b > limit]
    judge.expect(_("batches tried again, or above the limit, {where}").format(where=where), wasted, [])
    gap = min(doubled[-1] if doubled else start, limit + 1)
    allowed = len(doubled) + 1 + math.ceil(math.log2(max(gap, 2)))
    if (n := len(tried)) > allowed:
        seen = _("{n_tried} tries, {where}: {tried}").format(n_tried=n, where=where, tried=tried)
        judge.no(seen=seen, expected=_("at most {allowed}").format(allowed=allowed))


EXERCISE = Exercise(
    id="07.largest_batch",
    title="A search that survives running out of memory",
    level=3,
    minutes=15,
    task="""
Write `largest_batch(works, start=1, limit=None)`: the largest batch for which `works(batch)` does not
raise `torch.OutOfMemoryError`; 0 where not even 1 works. Try `start`, then twice as much each time, until
one does not fit; then halve the gap between the last that fitted and the first that did not. Never try more
than `limit`, where there is one, nor the same batch twice. Before each try, all memory of the
try before must be free: leave the `except` block, and call `gc.collect()`. Any other error passes through.
""",
    hints=(
        "Split the work in two. A helper tries one batch and answers True or False, and the search decides "
        "which batch comes next. When a try begins, what could still hold the memory of the one before?",
        "An error holds its frames, and they hold their tensors. So leave the `except` block before you "
        "call `gc.collect()`, and keep neither the error nor what `works` returns. Catch only "
        "`torch.OutOfMemoryError`, because you want to see other errors. In the search, two numbers move "
        "towards each other: the largest batch known to fit, and the smallest known not to. What are they "
        "at the start, with a `limit` and without?",
        """Here such a search finds the largest whole number whose square is at most 75:

```python
low, high = 0, 100
while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if middle**2 <= 75 else (low, middle)
print(low)  # 8
```""",
    ),
    reference=largest_batch,
    check_answer=_check_answer,
    why="An error holds its traceback, the traceback its frames, and the frames their tensors. A search "
    "that tries again while it holds the error fails at batches that would fit.",
    diagnoses={
        "not-caught": "Running out of memory ended your search. It should tell the search that this batch "
        "is too large.",
        "swallows": "An error that is not about memory was taken for one. A wrong shape in the model would "
        "now look like a batch that is too large.",
        "held-by-error": "When the next batch was tried, the memory of the try before was still held by "
        "what held its frames: the error. Leave the `except` block first, and keep no error.",
        "not-collected": "When the next batch was tried, objects of the try before that refer to each other "
        "were still there. They wait for the garbage collector: `gc.collect()` after each try.",
        "result-kept": "You still hold what `works` returned when the next batch is tried, so its memory "
        "isn't free.",
    },
)
