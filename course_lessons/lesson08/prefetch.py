"""Load ahead, but not too far."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.judge import Raised

from .checking import without_this_frame


def prefetch(batches, bound):
    end, source = object(), iter(batches)
    with ThreadPoolExecutor(max_workers=1) as loader:
        ahead = deque(loader.submit(next, source, end) for _ in range(bound))
        while (batch := ahead.popleft().result()) is not end:
            ahead.append(loader.submit(next, source, end))
            yield batch


class _Source:
    """Batches that are loaded one at a time; knows how many, and by which thread.

    Parameters
    ----------
    batches
        The batches; their number, where they are the numbers from 1 on.
    fails_at
        Which of them cannot be loaded; None for none.
    """

    def __init__(self, batches: int | Sequence[Any], fails_at: int | None = None) -> None:
        self.batches = range(1, batches + 1) if isinstance(batches, int) else batches
        self._fails_at = fails_at
        self.loaded = 0
        self.threads: set[threading.Thread] = set()

    def __iter__(self) -> Iterator[Any]:
        for i, batch in enumerate(self.batches):
            self.threads.add(threading.current_thread())
            if i == self._fails_at:
                raise OSError("the fourth batch cannot be read")
            time.sleep(0.001)
            self.loaded += 1
            yield batch

    def settle(self, at_least: int) -> int:
        """Wait until so many are loaded, and a moment longer; return how many there are."""
        _wait_until(lambda: self.loaded >= at_least)
        time.sleep(0.01)
        return self.loaded

    def working(self) -> bool:
        """Whether a thread that loaded is still there, after a moment."""
        return not _wait_until(lambda: not any(thread.is_alive() for thread in self.threads))


def _wait_until(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 0.4
    while not done() and time.monotonic() < deadline:
        time.sleep(0.001)
    return done()


END = object()


class _Loop(threading.Thread):
    """A thread that does the training loop's work."""


def _in_time(work: Callable[[], Any]) -> Future[Any]:
    """Do the loop's work in a thread of its own; come back after a second, also where it never ends."""
    result: Future[Any] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except Exception as error:  # noqa: BLE001
            result.set_exception(error)

    thread = _Loop(target=run, daemon=True)
    thread.start()
    thread.join(1.0)
    return result


def _pull(ahead: Iterator[Any], given: Sequence[Any], judge: Judge, kind: str = "waits") -> Any:
    """Return the next batch, or `END`; what the learner's generator raises is the learner's."""
    result = _in_time(functools.partial(next, ahead, END))
    if not result.done():
        wanted = "the OSError" if kind == "hangs" else "the next batch, or the end"
        judge.no(kind, seen=f"{list(given)}, then the loop waits", expected=wanted)
    if isinstance(error := result.exception(), OSError):
        raise error
    if isinstance(error, Exception):
        raise Raised(without_this_frame(error))
    return result.result()


@contextmanager
def _loop(answer: Callable[..., Any], source: _Source, bound: int, judge: Judge) -> Iterator[Any]:
    """Give the learner's generator, and leave it where nobody waits for it."""
    ahead = judge.is_a(answer(source, bound), Generator, "a generator")
    try:
        yield ahead
    finally:
        _in_time(ahead.close)


_BATCHES = ((6, 2), (3, 1), (0, 2), (2, 4), ([7, 0, 8], 2), ([7, None, 8], 1), ([[], [3]], 1))


def _check_prefetch(answer: Callable[..., Any], judge: Judge) -> None:
    for batches, bound in _BATCHES:
        source, got = _Source(batches), []
        with _loop(answer, source, bound, judge) as ahead:
            while (batch := _pull(ahead, got, judge)) is not END:
                got.append(batch)
        right = list(source.batches)
        if got != right:
            judge.no(_of_others(got, right), seen=f"{got}, bound {bound}", expected=f"{right}")
    _judge_failure(answer, judge)
    for bound in (3, 1):
        source = _Source(20)
        with _loop(answer, source, bound, judge) as ahead:
            for taken in (1, 2):
                _pull(ahead, range(1, taken), judge)
                loaded = source.settle(taken + bound)
                seen = f"{loaded} batches loaded by the time the loop had {taken}, bound {bound}"
                if any(isinstance(thread, _Loop) for thread in source.threads) or loaded <= taken:
                    judge.no("not-ahead", seen=seen, expected="loading goes on meanwhile")
                if loaded != taken + bound:
                    kind = "one-more" if loaded > taken + bound else "too-few"
                    if loaded > taken + bound + 1:
                        kind = "no-bound" if source.settle(20) == 20 else "several-more"
                    judge.no(kind, seen=seen, expected=f"{taken + bound}")
            left = _in_time(ahead.close)
        if not left.done() or source.working():
            judge.no(
                "thread-stays",
                seen="the loading thread is still there after the loop was left",
                expected="it ends",
            )


def _of_others(got: list[Any], right: list[Any]) -> str:
    """Return the diagnosis of a loop that got other batches."""
    if got == right[: len(got)]:
        ended = right[len(got)]
        if not ended:
            return "none-ends" if ended is None else "false-ends"
        return "last-missing"
    return "other-order" if sorted(map(str, got)) == sorted(map(str, right)) else "other-batches"


def _judge_failure(answer: Callable[..., Any], judge: Judge) -> None:
    got: list[Any] = []
    try:
        with _loop(answer, _Source(6, fails_at=3), 2, judge) as ahead:
            while (batch := _pull(ahead, got, judge, "hangs")) is not END:
                got.append(batch)
    except OSError:
        if got != [1, 2, 3]:
            judge.no(seen=f"{got}, then the error", expected="[1, 2, 3] first")
        return
    judge.no("error-lost", seen=f"{got}, and no error", expected="[1, 2, 3], then the OSError")


EXERCISE = Exercise(
    id="08.prefetch",
    title="Load ahead, but not too far",
    level=3,
    minutes=15,
    task="""
Write `prefetch(batches, bound)`, a generator that gives the batches of any iterable in order, while another thread
loads the next ones. When a batch is given out, `bound` more are loaded ahead of it, fewer only at the end, and no
further, since each takes memory. If loading a batch fails, the loop gets the batches before it, and then the error.
When the loop is left early, the thread ends.
""",
    hints=(
        "A `ThreadPoolExecutor(max_workers=1)` does what it is given in order, in one thread; its `with` block "
        "ends the thread, also when a generator is closed. `deque` and `ThreadPoolExecutor` are imported.",
        "`loader.submit(next, source, end)` gives a future. Its `.result()` waits, and raises what loading "
        "raised. `end` is an object that no batch can be.",
        "Submit `bound` times at first. Then, for each batch: take the oldest future's result, submit one more, "
        "and only then `yield`.",
    ),
    reference=prefetch,
    check_answer=_check_prefetch,
    why="A `DataLoader` with workers keeps the same four promises, with processes in the place of a thread and "
    "`prefetch_factor` in the place of the bound. A thread is enough where loading lets go of Python's lock: "
    "reading files, decoding images, copying to the device.",
    diagnoses={
        "not-ahead": "Nothing is loaded while the loop works on a batch: loading takes place when the loop "
        "asks.",
        "no-bound": "Loading goes on to the end, whatever the bound is. With a large data set the memory fills.",
        "one-more": "One batch more is loaded ahead than the bound allows. Mind that a thread which waits for room in a queue "
        "holds a batch as well.",
        "error-lost": "Loading failed, and the loop ended as if the data had. The training would go on with a "
        "part of it.",
        "thread-stays": "The loop was left, and the loading thread is still there.",
    },
)
