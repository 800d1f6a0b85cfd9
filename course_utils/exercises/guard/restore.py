"""What is put back after a check: everything that an answer can change in the process and others would feel.

Each function takes note of something, makes it what a check needs, and returns what restores it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import site
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from .torch_state import Undo

_set_interval = sys.setswitchinterval  # within a check it does nothing
_MOST_MEMORY = 4 * 2**30
_LIBRARIES = tuple(
    {str(Path(__file__).parents[3] / name) for name in ("course_utils", "course_lessons", "simgpu")}
    | {"<frozen", "<string>"}
    | {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {site.getusersitepackages()}
)


class Stop(BaseException):
    """Raised in an answer that ran out of time."""


def raise_in(thread: threading.Thread, kind: type[BaseException] = Stop) -> None:
    """Raise an exception in a thread, at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(kind)
    )


def is_librarys(code: CodeType) -> bool:
    """Whether code is of the course, of Python's or of an installed library's."""
    return code.co_filename.startswith(_LIBRARIES)


def is_learners(frame: FrameType | None, end: FrameType | None = None) -> bool:
    """Whether a frame, or one that led to it, is neither the course's nor a library's."""
    while frame is not None and frame is not end:
        if not is_librarys(frame.f_code):
            return True
        frame = frame.f_back
    return False


def keep_memory() -> Undo:
    """Limit the memory, so that the system ends no process: by what is writable, not by addresses, of which CUDA takes many."""
    try:
        import resource

        status = Path("/proc/self/statm").read_text(encoding="ascii").split()
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = int(status[5]) * resource.getpagesize() + _room()
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        if soft == resource.RLIM_INFINITY or limit < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    except (ImportError, OSError, ValueError):  # not Linux
        return lambda: None
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _room() -> int:
    """Return how much memory a check may take: half of what is free, 4 GiB at most."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    group = Path("/sys/fs/cgroup")
    for most, now in (
        (group / "memory.max", group / "memory.current"),
        (group / "memory/memory.limit_in_bytes", group / "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            free = min(free, int(most.read_text()) - int(now.read_text()))
    return min(max(free // 2, 2**29), _MOST_MEMORY)


def _keep_process() -> Undo:
    environment, collects = dict(os.environ), gc.isenabled()
    folder = os.getcwd() if os.path.isdir(".") else os.curdir
    trace, profile, deepest = sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()
    hooks, interval = (threading.gettrace(), threading.getprofile()), sys.getswitchinterval()
    lists = [(now, now[:]) for now in (sys.path, sys.meta_path, sys.path_hooks)]
    collecting, stack = gc.callbacks[:], threading.stack_size()
    os.umask(mask := os.umask(0o077))
    (warned := warnings.catch_warnings()).__enter__()
    set_deepest = sys.setrecursionlimit
    set_deepest(len(list(traceback.walk_stack(sys._getframe()))) + 900)

    def back() -> None:
        set_deepest(deepest)
        sys.settrace(trace)
        sys.setprofile(profile)
        threading.settrace(hooks[0])
        threading.setprofile(hooks[1])
        _set_interval(interval)
        threading.stack_size(stack)  # one too small ends the process with the next thread
        os.umask(mask)
        for now, old in lists:  # what a library has added may stay
            now[:] = [*old, *(one for one in now if not any(one is o for o in old))]
        gc.callbacks[:] = collecting
        (gc.enable if collects else gc.disable)()
        warned.__exit__(None, None, None)
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        os.chdir(folder)

    return back


def _keep_signals() -> Undo:
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    # A DataLoader sets SIGCHLD's handler once, and keeps it.
    others = signal.valid_signals() - {getattr(signal, "SIGCHLD", None)}
    before = {number: signal.getsignal(number) for number in others}
    set_timer, begun = getattr(signal, "setitimer", None), time.monotonic()
    left = signal.getitimer(signal.ITIMER_REAL)[0] if set_timer else 0

    def back() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)
        if left:  # an alarm of someone else's
            set_timer(signal.ITIMER_REAL, max(left - time.monotonic() + begun, 0.01))

    return back


def _keep_shell() -> Undo:
    """In a kernel ``exit()`` ends it, by way of the shell."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or "ask_exit" in vars(shell):
        return lambda: None

    def ask_exit() -> None:
        raise SystemExit

    shell.ask_exit = ask_exit
    return lambda: delattr(shell, "ask_exit")


def keep_threads(again: Undo) -> Undo:
    """Threads that an answer starts end with the check, where they can be stopped; then ``again`` undoes what they did meanwhile."""
    before = set(threading.enumerate())

    def back() -> None:
        if set(threading.enumerate()) == before:
            return
        _set_interval(1e-4)  # many that spin would leave it no turn
        until = time.monotonic() + 1
        while time.monotonic() < until:
            frames, new = sys._current_frames(), set(threading.enumerate()) - before
            found = [t for t in new if is_learners(frames.get(t.ident))]
            for thread in found:  # not one that only begins: it may hold a lock of Python's
                raise_in(thread, SystemExit)  # ends it without a word
            for timer in [t for t in new if isinstance(t, threading.Timer)]:
                timer.cancel()
            if not found and not any(map(_runs_learners, new)):
                break
            time.sleep(0.005)
        again()

    return back


def _runs_learners(thread: threading.Thread) -> bool:
    work = getattr(thread, "_target", None) or type(thread).run
    return hasattr(work, "__code__") and not is_librarys(work.__code__)


def _keep_children() -> Undo:
    def children() -> set[Any]:
        module = sys.modules.get("multiprocessing")
        return set(module.active_children()) if module else set()

    before = children()
    # A DataLoader's workers are daemons, and end with it.
    return lambda: [child.kill() for child in children() - before if not child.daemon]


def _keep_random() -> Undo:
    before = random_states()

    def back() -> None:
        random.setstate(before["Python"])
        sys.modules["numpy"].random.set_state(before["NumPy"])
        sys.modules["torch"].set_rng_state(before["PyTorch"])

    return back


def random_states() -> dict[str, Any]:
    """Return the state of each global generator."""
    import numpy as np
    import torch

    return {
        "PyTorch": torch.get_rng_state(),
        "Python": random.getstate(),
        "NumPy": np.random.get_state(),  # noqa: NPY002  (the state a learner's np.random.rand uses)
    }


KEEP = (_keep_random, _keep_process, _keep_signals, _keep_shell, _keep_children)
