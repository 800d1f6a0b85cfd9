"""A search that survives running out of memory."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised


def _raw(answer: Callable[..., Any]) -> Callable[..., Any]:
    """Return the learner's own function, whose errors a check wants to see as they are."""
    return answer.__wrapped__


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

    Like a real training, a try holds memory in its frame, and in a reference cycle.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tried: list[int] = []
        self.left_over = 0
        self._held: list[weakref.ref[Any]] = []

    def works(self, batch: int) -> None:
        """Train with a batch, or run out of memory."""
        self.tried.append(batch)
        self.left_over += any(ref() is not None for ref in self._held)
        if len(self.tried) > 200:
            raise _Enough
        activations, cycle = _Activations(), _Activations()
        cycle.itself = cycle
        self._held = [weakref.ref(activations), weakref.ref(cycle)]
        if not isinstance(batch, int) or batch < 1:
            raise ValueError(f"works({batch!r}): a batch is a whole number from 1 on")
        if batch > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory. (a make-believe card)")


class _Activations:
    itself: Any = None


class _Enough(Exception):
    """The search has tried too often."""


@contextmanager
def _quick_collection() -> Iterator[None]:
    """Let ``gc.collect()`` look only at what is made from now on, for a while."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _check_largest_batch(answer: Callable[..., Any], judge: Judge) -> None:
    with _quick_collection():
        for most, start, limit in _SEARCHES:
            _judge_search(answer, _Card(most), start, limit, judge)
        _judge_other_errors(answer, judge)
        card = _Card(11)
        got = answer(card.works)
    if got != 11 or card.tried[0] != 1:
        judge.no(
            "wrong-batch",
            seen=f"{got!r} after {card.tried}, with start and limit left out",
            expected="11, and 1 tried first",
        )


_SEARCHES = (
    (37, 1, None),
    (1000, 1, None),
    (64, 1, None),
    (63, 8, None),
    (5, 16, None),
    (1, 1, None),
    (0, 1, None),
    (0, 4, None),
    (500, 1, 100),
    (70, 1, 100),
    (500, 1, 64),
    (500, 3, 48),
    (30, 64, 40),
    (1, 1, 1),
)
"""The largest batch that fits, and the arguments ``start`` and ``limit``."""


def _judge_search(
    answer: Callable[..., Any], card: _Card, start: int, limit: int | None, judge: Judge
) -> None:
    right = card.most if limit is None else min(card.most, limit)
    case = f"start={start}, limit={limit}, of which {card.most} fit"
    raised: BaseException | None = None
    try:
        got = answer(card.works, start, limit)
    except Raised as problem:
        got, raised = None, problem.error
    tried = f"tried {card.tried[:12]}{' …' if len(card.tried) > 12 else ''} with {case}"
    if isinstance(raised, torch.OutOfMemoryError):
        judge.no("not-caught", seen=f"OutOfMemoryError; {tried}", expected=right)
    if isinstance(raised, ValueError) and "a batch is" in str(raised):
        judge.no("no-batch", seen=str(raised), expected="batches from 1 on")
    if raised is not None and not isinstance(raised, _Enough):
        raise Raised(raised)
    if card.left_over:
        judge.no(
            "not-freed", seen="memory of the try before, still held at the next", expected="none"
        )
    if limit is not None and max(card.tried, default=0) > limit:
        judge.no("over-limit", seen=tried, expected=f"no batch above {limit}")
    if raised is None and got != right:
        judge.no("wrong-batch", seen=f"{got!r}; {tried}", expected=right)
    rises = 1 + max(0, math.ceil(math.log2((right + 1) / start)))
    top = start if right < start else min(2 ** (rises - 1) * start, (limit or math.inf) + 1)
    halvings = math.ceil(math.log2(max(top, 2)))
    if len(card.tried) > rises + halvings:
        judge.no("too-many", seen=tried, expected=f"at most {rises + halvings} tries")
    if len(set(card.tried)) < len(card.tried):
        judge.no("too-many", seen=tried, expected="no batch twice")
    doubled = [start * 2**i for i in range(rises) if limit is None or start * 2**i <= limit]
    if card.tried[: len(doubled)] != doubled:
        judge.no("not-doubling", seen=tried, expected=f"first {doubled}")


def _judge_other_errors(answer: Callable[..., Any], judge: Judge) -> None:
    for error in (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), ValueError("labels")):

        def works(batch: int, error: Exception = error) -> None:
            if batch > 3:
                raise error

        try:
            got = _raw(answer)(works, 1, 50)
        except type(error):
            continue
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
        "not-caught": "Running out of memory ended the search, instead of telling it something.",
        "swallows": "An error that is not about memory was taken for one. A wrong shape in the model would "
        "now look like a batch that is too large.",
        "not-freed": "When the next batch was tried, memory of the try before was still held: by the error "
        "and its traceback, or by objects that refer to each other and wait for the garbage collector.",
        "over-limit": "A batch above `limit` was tried.",
        "wrong-batch": "That is not the largest batch that fits.",
        "too-many": "That took more tries than doubling and halving need, or some batch was tried twice.",
        "not-doubling": "The first tries are not `start`, twice that, four times that, and so on.",
        "no-batch": "A batch of 0 or a broken batch was tried.",
    },
)
