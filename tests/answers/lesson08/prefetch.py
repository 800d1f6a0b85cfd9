"""Known answers to 08.prefetch: wrong ones by the diagnosis that each must get, and a right one."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from course_lessons.lesson08.prefetch import END, prefetch
from course_lessons.shared.edited import edited


def _prefetch_by_queue(size: Callable[[int], int]) -> Callable[..., Any]:
    """Make a prefetcher of a queue and of a thread that does not notice when the loop is left."""

    def prefetch(batches, bound):
        waiting: queue.Queue[Any] = queue.Queue(size(bound))

        def put(item):
            with suppress(queue.Full):  # so that no test leaves a thread for ever
                waiting.put(item, timeout=3)

        def load():
            error = None
            try:
                for batch in batches:
                    put((batch, None))
            except Exception as problem:  # noqa: BLE001  (handed on)
                error = problem
            put((END, error))

        threading.Thread(target=load, daemon=True).start()
        while True:
            batch, error = waiting.get()
            if error is not None:
                raise error
            if batch is END:
                return
            yield batch

    return prefetch


def _prefetch_mute(batches, bound):
    waiting: queue.Queue[Any] = queue.Queue(bound)

    def load():
        with suppress(Exception):  # so that no traceback is printed
            for batch in batches:
                waiting.put(batch)
            waiting.put(END)

    threading.Thread(target=load, daemon=True).start()
    with suppress(queue.Empty):  # so that no test leaves a thread for ever
        while (batch := waiting.get(timeout=3)) is not END:
            yield batch


def _prefetch_swallowing(batches, bound):
    def whole():
        with suppress(Exception):
            yield from batches

    yield from prefetch(whole(), bound)


def _in_line(batches, bound):
    yield from batches


def _mixed(batches, bound):
    yield from reversed(list(batches))


def _one_thread_a_batch(batches, bound):
    for batch in batches:
        found = []
        thread = threading.Thread(target=found.append, args=(batch,))
        thread.start()
        thread.join()
        yield found[0]


def _first_error_first(batches, bound):
    source, end = iter(batches), object()
    with ThreadPoolExecutor(1) as pool:
        ahead = deque(pool.submit(next, source, end) for _ in range(bound))
        while True:
            for future in ahead:
                if future.exception():
                    raise future.exception()
            if (batch := ahead.popleft().result()) is end:
                return
            ahead.append(pool.submit(next, source, end))
            yield batch


def _by_thread(batches, bound):
    loaded, room, left = queue.Queue(), threading.Semaphore(bound), threading.Event()

    def load():
        try:
            source = iter(batches)
            while room.acquire() and not left.is_set():
                loaded.put((next(source), None))
        except StopIteration:
            loaded.put((END, None))
        except Exception as error:  # noqa: BLE001
            loaded.put((END, error))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        while (item := loaded.get())[0] is not END:
            room.release()
            yield item[0]
        if item[1] is not None:
            raise item[1]
    finally:
        left.set()
        room.release()
        thread.join()


def _pool_let_go(batches, bound):
    source, end, pool = iter(batches), object(), ThreadPoolExecutor(1)
    ahead = [pool.submit(next, source, end) for _ in range(bound)]
    while (batch := ahead.pop(0).result()) is not end:
        ahead.append(pool.submit(next, source, end))
        yield batch


_NONE = {"object(), iter(batches)": "None, iter(batches)"}
WRONG = {
    "not-ahead": (_in_line, _one_thread_a_batch),
    "no-bound": _prefetch_by_queue(lambda bound: 0),
    "several-more": (
        {"range(bound)": "range(bound + 2)"},
        _prefetch_by_queue(lambda bound: 2 * bound + 1),
    ),
    "one-more": ({"range(bound)": "range(bound + 1)"}, _prefetch_by_queue(lambda bound: bound)),
    "too-few": (
        {
            "loader.submit(next, source, end) for _ in range(bound)": "[loader.submit(next, source, end)]"
        },
        {
            "ahead.append(loader.submit(next, source, end))\nyield batch": "yield batch\n"
            "ahead.append(loader.submit(next, source, end))"
        },
    ),
    "none-ends": _NONE,
    "false-ends": {**_NONE, " is not end": ""},
    "error-lost": _prefetch_swallowing,
    "hangs": (_prefetch_mute, edited(_prefetch_mute, {"(bound)": "()"})),
    "too-soon": ({"iter(batches)": "iter(list(batches))"}, _first_error_first),
    "waits": edited(_prefetch_mute, {"waiting.put(END)": "pass"}),
    "thread-stays": (
        _prefetch_by_queue(lambda bound: bound - 1 or 1),
        edited(
            _by_thread,
            {
                "(target=load)": "(target=load, daemon=True)",
                "left.set()\nroom.release()\nthread.join()": "thread.join()",
            },
        ),
    ),
    "last-missing": {"iter(batches)": "iter(list(batches)[:2])"},
    "other-order": _mixed,
    "other-batches": lambda batches, bound: (b for batch in batches for b in (batch, batch)),
    "wrong-type": lambda batches, bound: list(batches),
}
RIGHT = {"a thread": _by_thread, "a pool that is let go": _pool_let_go}
