"""A search that survives running out of memory."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import torch

from course_lessons.shared.checking import quick_collection
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised


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


class _Card:
    """A make-believe card on which a batch of ``most`` fits; notes what is tried and what is left over.

    Like a real training, a try holds memory in its frame, in a reference cycle, and in what it returns.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tried: list[int] = []
        self.left_over: list[str] = []
        self._held: dict[str, weakref.ref[Any]] = {}

    def works(self, batch: int) -> Any:
        """Train with a batch, or run out of memory."""
        self.tried.append(batch)
        self.left_over += [name for name, ref in self._held.items() if ref() is not None]
        if len(self.tried) > 200:
            raise RuntimeError("more than 200 tries")
        activations, cycle, result = _Activations(), _Activations(), _Activations()
        cycle.append(cycle)
        self._held = {
            "held-by-error": weakref.ref(activations),
            "not-collected": weakref.ref(cycle),
            "result-kept": weakref.ref(result),
        }
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"works({batch!r}): a batch is a whole number from 1 on")
        if batch > self.most:
            del result
            raise torch.OutOfMemoryError("CUDA out of memory. (a make-believe card)")
        return result


class _Activations(list):
    """What takes memory; like nothing, where one asks whether it is true."""


@quick_collection()
def _check_largest_batch(answer: Callable[..., Any], judge: Judge) -> None:
    for most, *arguments in _SEARCHES:
        card = _Card(most)
        try:
            got = answer(card.works, *arguments)
        except Raised as problem:
            if not isinstance(problem.error, torch.OutOfMemoryError):
                raise
            seen = f"OutOfMemoryError, {_situation(card, *arguments)}"
            judge.no("not-caught", seen=seen, expected="a number")
        _judge_search(card, got, *arguments, judge=judge)
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("labels")):
        _judge_other_error(answer, error, judge)


_SEARCHES = (
    (37, 1, None),
    (1000, 1, None),
    (64, 1, None),
    (63, 8, None),
    (5, 16, None),
    (9, 32, None),
    (1, 1, None),
    (0, 1, None),
    (0, 4, None),
    (500, 1, 100),
    (70, 1, 100),
    (500, 1, 64),
    (500, 3, 48),
    (30, 64, 40),
    (1, 1, 1),
    (11,),
)
"""The largest batch that fits, and the arguments ``start`` and ``limit``, where given."""


def _situation(card: _Card, start: int = 1, limit: int | None = None) -> str:
    tried = f"{card.tried[:12]}{' …' if len(card.tried) > 12 else ''}"
    return f"tried {tried} with start={start}, limit={limit}, where {card.most} fit"


def _judge_search(
    card: _Card, got: Any, start: int = 1, limit: int | None = None, *, judge: Judge
) -> None:
    """Refuse a result, or a series of tries, that is not what the task asks for."""
    situation = _situation(card, start, limit)
    for diagnosis in ("result-kept", "held-by-error", "not-collected"):
        if diagnosis in card.left_over:
            seen = f"still there at the next try, {situation}"
            judge.no(diagnosis, seen=seen, expected="nothing of the try before")
    judge.number(got)
    right = min(card.most, limit or card.most)
    rises = 1 + max(0, math.ceil(math.log2((right + 1) / start)))
    doubled = [start * 2**i for i in range(rises) if limit is None or start * 2**i <= limit]
    over = sum(batch > (limit or math.inf) for batch in card.tried)
    for what, seen, expected in (
        ("largest batch", got, right),
        ("tries above the limit", over, 0),
        ("batches tried again", len(card.tried) - len({*card.tried}), 0),
        ("first tries", card.tried[: len(doubled)], doubled),
    ):
        if seen != expected:
            judge.no(seen=f"{what}: {seen}; {situation}", expected=f"{what}: {expected}")
    gap = start if right < start else min(2 ** (rises - 1) * start, (limit or math.inf) + 1)
    most = rises + math.ceil(math.log2(max(gap, 2)))
    if len(card.tried) > most:
        judge.no(seen=f"{len(card.tried)} tries; {situation}", expected=f"at most {most}")


def _judge_other_error(answer: Callable[..., Any], error: Exception, judge: Judge) -> None:
    def works(batch: int) -> None:
        if batch > 3:
            raise error

    try:
        got = answer(works, 1, 50)
    except Raised as problem:
        if problem.error is not error:
            raise
    else:
        judge.no("swallows", seen=f"{got!r}, although works raised {error!r}", expected=repr(error))


EXERCISE = Exercise(
    id="06.largest_batch",
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
        "Write a helper `fits(batch)` with `try`, `except` and one `gc.collect()` at its end. It returns "
        "True or False, and keeps nothing.",
        "Two numbers move towards each other: `good`, the largest known to fit (0 at first), and `bad`, the "
        "smallest known not to (`limit + 1`, or infinity).",
        "While `bad - good > 1`, try the middle. `except RuntimeError` catches too much: "
        "`torch.OutOfMemoryError` is only one of its kinds.",
    ),
    reference=largest_batch,
    check_answer=_check_largest_batch,
    why="An error holds its traceback, the traceback its frames, and the frames their tensors. A search that "
    "tries again while it holds the error fails at batches that would fit.",
    diagnoses={
        "not-caught": "Running out of memory ended your search. It should tell the search that this batch is too large.",
        "swallows": "An error that is not about memory was taken for one. A wrong shape in the model would "
        "now look like a batch that is too large.",
        "held-by-error": "When the next batch was tried, the memory of the try before was still held by what held its frames: "
        "the error. Leave the `except` block first, and keep no error.",
        "not-collected": "When the next batch was tried, objects of the try before that refer to each other were still there. "
        "They wait for the garbage collector: `gc.collect()` after each try.",
        "result-kept": "You still hold what `works` returned when the next batch is tried, so its memory isn't free.",
    },
)
