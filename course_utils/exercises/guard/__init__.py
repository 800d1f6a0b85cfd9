"""Runs a learner's answer so that it ends, and leaves nothing behind.

On the main thread of Linux and macOS an alarm ends what takes too long: a signal also interrupts what
waits (locks, sleeps, queues, processes), regular expressions and huge integers, and state that PyTorch
keeps for each thread is where the learner's own code sees it. Elsewhere (Windows, other threads) the
answer runs in a thread of its own, which gets the exception at its next line of Python; what never comes
back is left behind, and the notebook goes on.

Nothing in the process ends a loop in C that looks at no signal (``deque(count())``; in another thread, a
simulated rank's too, also a huge integer or a regular expression), a segmentation fault, or one long
operation of PyTorch on the main thread before it is over. Memory is limited on Linux only; macOS and
Windows have no such limit for one part of a program.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

from . import names, refusals, restore, torch_state
from .restore import Stop, is_learners, is_librarys, raise_in

_running = threading.Lock()
_BUILTINS = vars(builtins)


def run(
    work: Callable[[], None], limit: float, answer: object, *owners: Any
) -> tuple[bool, list[str]]:
    """Run ``work`` for ``limit`` seconds at most, and put back what it changed in the process; not within itself.

    Parameters
    ----------
    work
        What to run. It keeps its own results and catches its own errors.
    limit
        Seconds, of a machine that has time for it.
    answer
        The learner's answer, which ``work`` judges.
    owners
        Further modules, classes or objects whose attributes are put back.

    Returns
    -------
    bool
        Whether it came to its end.
    list of str
        The functions that it had replaced.
    """
    if not _running.acquire(blocking=False):
        raise refusals.NotInACheckError("call check() below the function, not in it")
    undo, replaced = list[restore.Undo](), list[str]()
    originals = _BUILTINS.copy()
    try:
        for keep in (*torch_state.KEEP, *restore.KEEP, restore.keep_memory):
            undo.append(keep())
        own = answer.__globals__ if type(answer) is FunctionType else {}
        undo.append(refusals.refuse(own))
        put_back = names.keep(owners, replaced)
        undo += [restore.keep_threads(put_back), put_back]  # before exits are allowed again
        undo.append(refusals.loop_in_python(own))
        originals = _BUILTINS.copy()
        main = threading.current_thread() is threading.main_thread()
        ended = (_on_main if main and hasattr(signal, "setitimer") else _in_thread)(work, limit)
    finally:
        gc.callbacks.clear()  # they could be the learner's
        patched = _BUILTINS.copy()
        _BUILTINS.update(originals)  # first: what follows needs them
        replaced += [f"builtins.{n}" for n, f in originals.items() if patched.get(n) is not f]
        _at_each_instruction(None)
        for back in reversed(undo):
            try:  # noqa: SIM105  (suppress() may not be itself yet)
                back()
            except Exception:  # noqa: BLE001  (one that fails stops no other)
                pass
        _running.release()
    return ended, replaced


def forget(error: BaseException | None) -> None:
    """Let go, within a run, of what an answer left: its destructors are its code too, and may never end."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__
    gc.collect(1)


# --- In time


def _on_main(work: Callable[[], None], limit: float) -> bool:
    own, over, rings, importing = sys._getframe(), False, 0, False
    latest, owed = _now() + limit + 60, _owed(limit)

    def insist(*_: object) -> bool:
        """Stop the answer wherever it is; code of the course that cleans up after it is let be."""
        frame = sys._getframe(1)
        if over:
            return False
        _at_each_instruction(insist)
        if _simulates(frame) or not is_learners(frame, own):
            return False
        raise Stop

    def ring(signum: int, frame: FrameType | None) -> None:
        nonlocal rings, importing
        if over or frame is own:
            return
        if _now() < latest:
            if importing or _imports(frame):
                # Half a library would stay, and fail ever after. Once it is there, the time begins again.
                importing = _imports(frame)
                _set_timer(_REAL, 0.25 if importing else limit, 0.25)
                return
            if not rings and (more := owed()):
                _set_timer(_REAL, more, 0.25)
                return
            if _simulates(frame):  # at the latest the answer's next instruction raises
                _set_timer(_REAL, 0.005, 0.25)
                _at_each_instruction(insist)
                return
        gc.callbacks.clear()  # in one the error would be lost, and each collection would loop again
        rings += 1
        if rings > 3:  # it catches every exception: raise one wherever it goes, until it is out
            _at_each_instruction(insist)
        raise Stop

    _set_handler(signal.SIGALRM, ring)
    _set_timer(_REAL, limit, 0.25)
    try:
        work()
        return not rings
    except Stop:
        return False
    finally:
        over = True
        _set_timer(_REAL, 0)


def _owed(limit: float) -> Callable[[], float]:
    """Return what tells, at the end of each wait, how long to wait on: for seconds that others' work took.

    What waits for itself, and what had its seconds of the processor, is owed nothing.
    """
    wall, begin = _now(), (processor := _processor())

    def more() -> float:
        nonlocal wall, processor
        passed, used = _now() - wall, _processor() - processor
        wall, processor = wall + passed, processor + used
        left = limit - (processor - begin)
        return max(left, 0.25) if left > limit / 10 and used > passed / 10 else 0.0

    return more


def _imports(frame: FrameType | None) -> bool:
    """Whether a library is being imported just now."""
    return _is_within("<frozen importlib._bootstrap>", frame)


def _simulates(frame: FrameType | None) -> bool:
    """Whether the simulated device is at work: C++ calls it where it allows no exception, and aborts."""
    return _is_within(_SIMULATED, frame) and not _is_within(_CLUSTER, frame)


def _is_within(file: str, frame: FrameType | None) -> bool:
    while frame is not None and is_librarys(frame.f_code):
        if frame.f_code.co_filename.startswith(file):
            return True
        frame = frame.f_back
    return False


_SIMULATED = str(Path(__file__).parents[3] / "simgpu")
_CLUSTER = str(Path(_SIMULATED) / "cluster")  # waits in Python, where an exception may end it


_set_handler, _now, _processor = signal.signal, time.monotonic, time.process_time
_set_timer, _REAL = getattr(signal, "setitimer", None), getattr(signal, "ITIMER_REAL", 0)


def _at_each_instruction(function: Callable[..., Any] | None) -> None:
    """Call a function before each instruction of Python; before version 3.12 once, before the main thread goes on."""
    if (monitoring := getattr(sys, "monitoring", None)) is None:
        if function:
            ask = ctypes.cast(ctypes.pythonapi.PyObject_IsTrue, ctypes.c_void_p)
            ctypes.pythonapi.Py_AddPendingCall(ask, ctypes.c_void_p(id(_asked(function))))
    elif function and monitoring.get_tool(_TOOL) is None:
        monitoring.use_tool_id(_TOOL, "exercise check")
        monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, function)
        monitoring.set_events(_TOOL, monitoring.events.INSTRUCTION)
    elif not function and monitoring.get_tool(_TOOL) == "exercise check":
        monitoring.set_events(_TOOL, 0)
        monitoring.free_tool_id(_TOOL)


_TOOL = 4


@cache  # kept for good: the call may come when all is over
def _asked(function: Callable[..., Any]) -> object:
    """Return an object that calls a function when it is asked for its truth."""
    return type("Asked", (), {"__bool__": function})()


def _in_thread(work: Callable[[], None], limit: float) -> bool:
    def quietly() -> None:
        with suppress(Stop):
            work()

    thread = threading.Thread(target=quietly, daemon=True, name="exercise-check")
    thread.start()
    latest, owed = _now() + limit + 60, _owed(limit)
    try:
        thread.join(limit)
        while thread.is_alive() and _now() < latest and (more := owed()):
            thread.join(more)
    finally:
        stopped, deadline = thread.is_alive(), _now() + 1.0
        while thread.is_alive() and _now() < deadline:
            if not _simulates(sys._current_frames().get(thread.ident)):
                raise_in(thread)
            thread.join(0.1)
    return not stopped
