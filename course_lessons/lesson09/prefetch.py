"""Load ahead, but not too far."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor

from course_language import _
from course_utils.exercises import Exercise
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
    """An iterable of batches that counts what is loaded, and by which threads; an OSError in it is raised."""

    def __init__(self, batches):
        self.batches, self.loaded, self.threads = batches, 0, set()

    def __iter__(self):
        for batch in self.batches:
            self.threads.add(threading.current_thread())
            if isinstance(batch, OSError):
                raise batch
            time.sleep(0.001)
            self.loaded += 1
            yield batch

    def settle(self, at_least):
        """Wait up to 0.4 s until ``at_least`` batches are loaded, and 10 ms more; return how many are."""
        deadline = time.monotonic() + 0.4
        while self.loaded < at_least and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        return self.loaded


class _Loop(threading.Thread):
    """A thread that takes ``take`` batches from the answer's generator, for at most 2 s, and closes it."""

    def __init__(self, answer, source, bound, judge, take=None):
        super().__init__(name="loop", daemon=True)
        self.ahead = judge.is_a(answer(source, bound), Generator, _("a generator"))
        self.source, self.bound, self.take = source, bound, take
        self.got, self.loaded, self.error, self.leaving = [], [], None, False
        self.start()
        self.join(2.0)
        if not self.leaving:
            judge.no(seen=_("the loop waits for ever"), expected=_("the next batch, the end, or the error"))
        if self.error and self.error not in source.batches:
            raise Raised(without_this_frame(self.error))

    def run(self):
        try:
            for batch in itertools.islice(self.ahead, self.take):
                self.got.append(batch)
                if self.take:
                    self.loaded.append(self.source.settle(len(self.got) + self.bound))
        except Exception as error:  # noqa: BLE001  (of the source, or the learner's)
            self.error = error
        self.leaving = True
        self.ahead.close()


def _check_answer(answer, judge):
    """Check the batches, an error while loading, how far ahead it loads, and that its threads end."""
    for batches, bound in (([1, 2, 3, 4, 5], 2), ([], 2), ([1, 2], 4), ([7, 0, 8], 2), ([[], None, 8], 1)):
        loop = _Loop(answer, _Source(batches), bound, judge)
        judge.expect(_("batches with a bound of {bound}").format(bound=bound), loop.got, batches)
    error = OSError(_("the fourth batch cannot be read"))
    loop = _Loop(answer, _Source([1, 2, 3, error, 5, 6]), 2, judge)
    if not loop.error:
        seen = _("{got}, and no error").format(got=loop.got)
        judge.no("error-lost", seen=seen, expected=_("[1, 2, 3], then the OSError"))
    judge.expect(_("batches before the error"), loop.got, [1, 2, 3])
    for bound in (3, 1):
        source = _Source(range(1, 21))
        loop = _Loop(answer, source, bound, judge, take=2)
        for taken, loaded in enumerate(loop.loaded, 1):
            seen = _("{loaded} batches loaded by the time the loop had {taken}, bound {bound}")
            seen = seen.format(loaded=loaded, taken=taken, bound=bound)
            if loaded <= taken or loop in source.threads:
                judge.no("not-ahead", seen=seen, expected=_("loading goes on meanwhile"))
            if loaded != taken + bound:
                diagnosis = "no-bound" if source.settle(20) == 20 else "wrong-value"
                diagnosis = "one-more" if loaded == taken + bound + 1 else diagnosis
                judge.no(diagnosis, seen=seen, expected=f"{taken + bound}")
        for thread in (loop, *source.threads):
            thread.join(1.0)
            if thread.is_alive():
                judge.no("thread-stays", seen=_("the loading thread is still there"), expected=_("it ends"))


EXERCISE = Exercise(
    id="09.prefetch",
    title="Load ahead, but not too far",
    level=3,
    minutes=15,
    task="""
Write `prefetch(batches, bound)`, a generator that gives the batches of any iterable in order, while another
thread loads the next ones. When a batch is given out, `bound` more are loaded ahead of it, fewer only at the
end, and no further, since each takes memory. If loading a batch fails, the loop gets the batches before it,
and then the error. When the loop is left early, the thread ends.
""",
    hints=(
        "Two things happen at once here. Your loop works on a batch, and another thread loads the next ones. "
        "Ask what keeps the loads in order, and what carries a batch or an error to the loop.",
        "An executor with `max_workers=1` does its jobs in order, in one thread. Its `with` block ends the "
        "thread, even if your generator is closed early. With `source = iter(batches)`, `submit(next, "
        "source, end)` gives you a future at once. Its `.result()` waits, and raises what loading raised. "
        "Make `end` a new `object()`, so that no batch is the same object.",
        """Here two jobs stay in flight. Does your next load belong before the `yield`, or after it?

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
    check_answer=_check_answer,
    why="A `DataLoader` with workers keeps the same promises, with processes and `prefetch_factor`. A thread "
    "is enough where loading lets go of Python's lock, as reading files and copying to the device do.",
    diagnoses={
        "not-ahead": "Nothing is loaded while the loop works on a batch.",
        "no-bound": "Loading goes on to the end, whatever the bound is, and memory fills.",
        "one-more": "One batch more is loaded ahead than the bound allows. Mind that a thread which waits "
        "for room in a queue holds a batch as well.",
        "error-lost": "Loading failed, and the loop ended as if all batches had come.",
        "thread-stays": "The loop was left, and the loading thread is still there.",
    },
)
