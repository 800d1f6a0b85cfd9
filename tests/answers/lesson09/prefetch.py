"""Known answers to 09.prefetch."""

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from course_lessons.lesson09.prefetch import prefetch

_END = StopIteration  # the same object in another process, too


def _items_to_queue(batches):
    """Yield the batches, then ``_END``; in its place an OSError, if there is one."""
    try:
        yield from batches
        yield _END
    except OSError as error:
        yield error


def _by_queue_of_size(size):
    """Return an answer with a queue of ``size(bound)`` items; its thread goes on when the loop is left."""

    def prefetch(batches, bound):
        waiting = queue.Queue(size(bound))

        def load():
            with suppress(queue.Full):  # so that no test leaves a thread for ever
                for item in _items_to_queue(batches):
                    waiting.put(item, timeout=3)

        threading.Thread(target=load, daemon=True).start()
        while (batch := waiting.get()) is not _END:
            if isinstance(batch, Exception):
                raise batch
            yield batch

    return prefetch


def _swallowing(batches, bound):
    """End without an error where the source raises one."""

    def whole():
        with suppress(Exception):
            yield from batches

    yield from prefetch(whole(), bound)


def _in_line(batches, bound):
    yield from batches


def _by_thread(batches, bound):
    loaded, room, left = queue.Queue(), threading.Semaphore(bound), threading.Event()

    def load():
        try:
            source = iter(batches)
            while room.acquire() and not left.is_set():
                loaded.put((next(source), None))
        except StopIteration:
            loaded.put((_END, None))
        except Exception as error:  # noqa: BLE001
            loaded.put((_END, error))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        while (item := loaded.get())[0] is not _END:
            room.release()
            yield item[0]
        if item[1] is not None:
            raise item[1]
    finally:
        left.set()
        room.release()
        thread.join()


def _pool_let_go(batches, bound):
    """Leave the thread pool to be collected as garbage."""
    source, end, pool = iter(batches), object(), ThreadPoolExecutor(1)
    ahead = [pool.submit(next, source, end) for _ in range(bound)]
    while (batch := ahead.pop(0).result()) is not end:
        ahead.append(pool.submit(next, source, end))
        yield batch


WRONG = {
    "not-ahead": _in_line,
    "no-bound": _by_queue_of_size(lambda bound: 0),
    "one-more": _by_queue_of_size(lambda bound: bound),
    "error-lost": _swallowing,
    "thread-stays": _by_queue_of_size(lambda bound: bound - 1 or 1),
    "wrong-type": lambda batches, bound: list(batches),
}
RIGHT = {"a thread": _by_thread, "a pool that is let go": _pool_let_go}
