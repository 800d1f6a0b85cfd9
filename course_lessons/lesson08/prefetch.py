"""Load ahead, but not too far."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """Batches that are loaded one at a time, or fail; knows how many were, and by which threads."""

    def __init__(self, batches: Sequence[Any], fails_at: int | None = None) -> None:
        self.batches, self.fails_at = batches, fails_at
        self.loaded = 0
        self.threads: set[threading.Thread] = set()

    def __iter__(self) -> Iterator[Any]:
        for i, batch in enumerate(self.batches):
            self.threads.add(threading.current_thread())
            if i == self.fails_at:
                raise OSError("the fourth batch cannot be read")
            time.sleep(0.001)
            self.loaded += 1
            yield batch

    def settle(self, at_least: int) -> int:
        """Wait until so many are loaded, and a moment longer; return how many there are."""
        deadline = time.monotonic() + 0.4
        while self.loaded < at_least and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        return self.loaded

    def working(self) -> bool:
        """Whether a thread that loaded is still there, after a moment."""
        for thread in self.threads:
            thread.join(0.4)
        return any(thread.is_alive() for thread in self.threads)


def _in_loop(work: Callable[[], Any], judge: Judge | None = None) -> bool:
    """Do the training loop's work in a thread of its own; return whether it was done in a second.

    With a judge, work that never ends is refused, and what the learner's generator raises is the learner's.
    """
    errors: list[Exception] = []

    def run() -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=run, name="loop", daemon=True)
    thread.start()
    thread.join(1.0)
    done = not thread.is_alive()
    if judge and not done:
        judge.no(seen="the loop waits for ever", expected="the next batch, the end, or the error")
    if judge and errors:
        raise Raised(without_this_frame(errors[0]))
    return done


@contextmanager
def _prefetched(
    answer: Callable[..., Any], source: _Source, bound: int, judge: Judge
) -> Iterator[Any]:
    """Give the learner's generator, and leave it where nobody waits for it."""
    ahead = judge.is_a(answer(source, bound), Generator, "a generator")
    try:
        yield ahead
    finally:
        _in_loop(ahead.close)


_CASES = (
    *(([1, 2, 3, 4, 5, 6], 2), ([1, 2, 3], 1), ([], 2), ([1, 2], 4)),
    *(([7, 0, 8], 2), ([7, None, 8], 1), ([[], [3]], 1)),
)


def _check_prefetch(answer: Callable[..., Any], judge: Judge) -> None:
    for batches, bound in _CASES:
        got: list[Any] = []
        with _prefetched(answer, _Source(batches), bound, judge) as ahead:
            _in_loop(functools.partial(got.extend, ahead), judge)
        judge.expect(f"batches with a bound of {bound}", got, batches)
    got = []
    try:
        with _prefetched(answer, _Source(range(1, 7), fails_at=3), 2, judge) as ahead:
            _in_loop(functools.partial(got.extend, ahead), judge)
        judge.no("error-lost", seen=f"{got}, and no error", expected="[1, 2, 3], then the OSError")
    except Raised as raised:
        if not isinstance(raised.error, OSError):
            raise
    judge.expect("batches before the error", got, [1, 2, 3])
    for bound in (3, 1):
        source = _Source(range(1, 21))
        with _prefetched(answer, source, bound, judge) as ahead:
            for taken in (1, 2):
                _in_loop(functools.partial(next, ahead), judge)
                _judge_ahead(source, taken, bound, judge)
            left = _in_loop(ahead.close)
        if not left or source.working():
            seen = "the loading thread is still there after the loop was left"
            judge.no("thread-stays", seen=seen, expected="it ends")


def _judge_ahead(source: _Source, taken: int, bound: int, judge: Judge) -> None:
    loaded, right = source.settle(taken + bound), taken + bound
    seen = f"{loaded} batches loaded by the time the loop had {taken}, bound {bound}"
    if loaded <= taken or any(thread.name == "loop" for thread in source.threads):
        judge.no("not-ahead", seen=seen, expected="loading goes on meanwhile")
    if loaded == right + 1:
        judge.no("one-more", seen=seen, expected=f"{right}")
    if loaded != right:
        everything = source.settle(20) == 20
        judge.no("no-bound" if everything else "wrong-value", seen=seen, expected=f"{right}")


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
        "Two things happen at once here. Your loop works on a batch, and another thread loads the next "
        "ones. Ask what keeps the loads in order, and what carries a batch or an error to the loop.",
        "An executor with `max_workers=1` does its jobs in order, in one thread. Its `with` block ends the "
        "thread, even if your generator is closed early. With `source = iter(batches)`, `submit(next, "
        "source, end)` gives you a future at once. Its `.result()` waits, and raises what loading raised. "
        "Make `end` a new `object()`, so that no batch is the same object.",
        """This example keeps two jobs in flight. Does your next load belong before the `yield`, or after
it?

```python
from collections import deque
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(max_workers=1) as pool:
    jobs = deque(pool.submit(pow, 2, n) for n in (3, 4))
    first = jobs.popleft().result()  # 8, the oldest job's result
    jobs.append(pool.submit(pow, 2, 5))
    print([job.result() for job in jobs])  # [16, 32]
```""",
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
