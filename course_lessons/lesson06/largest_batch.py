"""A search that survives running out of memory."""

from __future__ import annotations

import gc
import math
import operator
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lessons.shared.checking import quick_collection
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
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
            raise _Enough
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


class _Enough(Exception): ...


@quick_collection()
def _check_largest_batch(answer: Callable[..., Any], judge: Judge) -> None:
    cards = [_Card(most) for most, *_ in _SEARCHES]
    got = [
        _search(answer, card, start, limit, judge)
        for card, (_, start, limit) in zip(cards, _SEARCHES, strict=True)
    ]
    right = [_outcome(largest_batch, *search) for search in _SEARCHES]
    twins = {
        name: [[_outcome(one, *search) for search in _SEARCHES] for one in several(twin)]
        for name, twin in TWINS.items()
        if got != right
    }

    def say(at: int) -> tuple[str, str]:
        return f"{got[at]!r}; {_told(cards[at], *_SEARCHES[at][1:])}", str(right[at])

    judge.closest(got, right, twins, alike=operator.eq, otherwise="wrong-batch", say=say)
    for card, (_, start, limit) in zip(cards, _SEARCHES, strict=True):
        _judge_tries(card, start, limit, judge)
    _judge_other_errors(answer, judge)
    card = _Card(11)
    found = answer(card.works)
    if found != 11 or card.tried[0] != 1:
        judge.no(
            "defaults",
            seen=f"{found!r} after {card.tried}, with start and limit left out",
            expected="11, and 1 tried first",
        )


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
)
"""The largest batch that fits, and the arguments ``start`` and ``limit``."""


def _told(card: _Card, start: int, limit: int | None) -> str:
    tried = f"{card.tried[:12]}{' …' if len(card.tried) > 12 else ''}"
    return f"tried {tried} with start={start}, limit={limit}, of which {card.most} fit"


def _outcome(function: Callable[..., Any], most: int, start: int, limit: int | None) -> Any:
    try:
        return function(_Card(most).works, start, limit)
    except Exception as error:  # noqa: BLE001  (a twin that fails gives no number)
        return error


def _search(
    answer: Callable[..., Any], card: _Card, start: int, limit: int | None, judge: Judge
) -> Any:
    raised: BaseException | None = None
    got = None
    try:
        got = answer(card.works, start, limit)
    except Raised as problem:
        raised = problem.error
    tried = _told(card, start, limit)
    if isinstance(raised, torch.OutOfMemoryError):
        judge.no("not-caught", seen=f"OutOfMemoryError; {tried}", expected="a number")
    if isinstance(raised, ValueError) and "a batch is" in str(raised):
        judge.no("no-batch", seen=str(raised), expected="batches from 1 on")
    if isinstance(raised, _Enough):
        judge.no("too-many", seen=f"more than 200 tries; {tried}", expected="a few")
    if raised is not None:
        raise Raised(raised)
    for name in ("result-kept", "held-by-error", "not-collected"):
        if name in card.left_over:
            judge.no(name, seen=f"still there when the next was tried; {tried}", expected="nothing")
    if limit is not None and max(card.tried, default=0) > limit:
        judge.no("over-limit", seen=tried, expected=f"no batch above {limit}")
    got = got.item() if isinstance(got, np.generic) else got
    return got if got is None else judge.is_a(got, (int, float), "a whole number")


def _judge_tries(card: _Card, start: int, limit: int | None, judge: Judge) -> None:
    tried = _told(card, start, limit)
    right = min(card.most, limit or card.most)
    if len(set(card.tried)) < len(card.tried):
        judge.no("twice", seen=tried, expected="no batch twice")
    rises = 1 + max(0, math.ceil(math.log2((right + 1) / start)))
    doubled = [start * 2**i for i in range(rises) if limit is None or start * 2**i <= limit]
    if card.tried[: len(doubled)] != doubled:
        judge.no("not-doubling", seen=tried, expected=f"first {doubled}")
    top = start if right < start else min(2 ** (rises - 1) * start, (limit or math.inf) + 1)
    halvings = math.ceil(math.log2(max(top, 2)))
    if len(card.tried) > rises + halvings:
        judge.no("too-many", seen=tried, expected=f"at most {rises + halvings} tries")


_RETURN = "return good"
_GAP = "while bad - good > 1:"
_TOP = "bad = min(bad, batch)"
_MISTAKES = {
    "only-doubled": {_GAP: "while False:"},
    "first-that-fails": ({_RETURN: "return good + 1"}, {_RETURN: "return bad"}),
    "one-less": {_RETURN: "return max(good - 1, 0)"},
    "limit-left-out": {"limit + 1": "limit"},
    "under-limit": (
        {_TOP: f"if batch >= bad:\n    return good\n{_TOP}"},
        {_TOP: f"if batch >= bad and good:\n    return good\n{_TOP}"},
    ),
    "gap-too-wide": {_GAP: "while bad - good > 2:"},
    "start-fails": (
        {_GAP: "while good and bad - good > 1:"},
        {_GAP: "while (good or start > (limit or start)) and bad - good > 1:"},
        {"good, bad = 0": "good, bad = start // 2"},
    ),
    "none-fits": ({_RETURN: "return good or None"}, {_RETURN: "return max(good, 1)"}),
    "reads-result": {"works(batch)\nfine = True": "fine = bool(works(batch))"},
}
TWINS: dict[str, Any] = twins_of(largest_batch, _MISTAKES)


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
        "held-by-error": "When the next batch was tried, the memory of the try before was still held by what held its frames: "
        "the error. Leave the `except` block first, and keep no error.",
        "not-collected": "When the next batch was tried, objects of the try before that refer to each other were still there. "
        "They wait for the garbage collector: `gc.collect()` after each try.",
        "result-kept": "What `works` had returned was still held at the next try.",
        "over-limit": "A batch above `limit` was tried.",
        "wrong-batch": "That is not the largest batch that fits.",
        "only-doubled": "The doubling is there, and the halving is not: the gap between the last that fitted and the first that "
        "did not is never searched.",
        "first-that-fails": "That is the first batch that does not fit.",
        "one-less": "That is one less than the largest batch that fits.",
        "limit-left-out": "`limit` itself may be tried.",
        "under-limit": "Where doubling would pass `limit`, the search ends. Between the last batch that fitted and `limit` "
        "others may fit.",
        "gap-too-wide": "The halving ends too early: one batch in the gap is never tried.",
        "start-fails": "Where `start` does not fit, smaller batches may: the search goes on between 0 and `start`.",
        "none-fits": "Where no batch fits, the answer is 0.",
        "reads-result": "What `works` returns says nothing. It worked where it raised no error.",
        "defaults": "Called with `works` alone, the search is another one: `start` is 1, and there is no limit.",
        "twice": "A batch was tried twice.",
        "too-many": "That took more tries than doubling and halving need.",
        "not-doubling": "The first tries are not `start`, twice that, four times that, and so on.",
        "no-batch": "Something was tried that is no batch: a batch is a whole number from 1 on.",
    },
)
