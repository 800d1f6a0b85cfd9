"""Run a learner's answer with a time limit and a memory limit, and restore the global state that it changed.

On the main thread of Linux and macOS an alarm ends what takes too long: a signal also interrupts what waits
(locks, sleeps, queues, processes). Elsewhere (Windows, other threads) the answer runs in a thread of its own,
in which the exception is raised at its next line of Python; a thread that never gets there keeps running.

Not guarded against: a loop in C that checks no signals (``deque(count())``), a segmentation fault, an answer
that ends its own process (``os._exit``) or patches Python or PyTorch. Memory is limited on Linux only.
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
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from course_language import _

_ROOT = Path(__file__).parents[2]
_SIMGPU, _CLUSTER = str(_ROOT / "simgpu"), str(_ROOT / "simgpu" / "cluster")
_LIBRARIES = (
    *(str(_ROOT / "course_utils"), str(_ROOT / "course_lessons"), _SIMGPU),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(site.getusersitepackages(), "<frozen", "<string>"),
)
_INTERVAL_SECONDS = 0.25  # seconds from one alarm to the next
_MAX_MEMORY_BYTES = 4 * 2**30  # bytes
_SWITCHES = ("default_dtype", "num_threads", "deterministic_debug_mode", "float32_matmul_precision")
_FLAGS = (("mkldnn", "enabled"), ("cudnn", "benchmark"), ("cudnn", "deterministic"))
_run_lock = threading.Lock()


class Stop(BaseException):
    """Raised inside an answer that exceeds its time limit; not an `Exception`, which answers may catch."""


def run(function: Callable[[], Any], seconds: float) -> Any:
    """Call ``function()`` and return its result, or None if it exceeds the time limit; restore global state.

    ``seconds`` is the limit on a machine that is otherwise idle; see `_Deadline`. Global state is what
    `_restored_python_state` and `_restored_torch_state` list. RuntimeError if called from within itself.
    """
    if not _run_lock.acquire(blocking=False):
        raise RuntimeError(_("call check() below the function, not in it"))
    try:
        with ExitStack() as stack:
            for context_manager in (
                _restored_python_state,
                _restored_torch_state,
                _stop_new_threads_and_processes,
                _limited_memory,
            ):
                stack.enter_context(context_manager())
            if _is_on_main_thread() and hasattr(signal, "setitimer"):
                return _run_with_alarm(function, seconds)
            return _run_in_thread(function, seconds)
    finally:
        _run_lock.release()


def _is_on_main_thread() -> bool:
    """Return whether this is the main thread, the only one that can handle signals."""
    return threading.current_thread() is threading.main_thread()


# --- The time limit


class _Deadline:
    """The deadline of an answer, ``seconds`` after it starts.

    If other programs take most of the CPU, the limit is that of its CPU time instead, and 60 s later at most.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.latest = seconds, time.monotonic() + seconds + 60
        self.wall, self.cpu = time.monotonic(), time.process_time()

    def expired(self, frame: FrameType | None) -> bool:
        """Return whether the answer has timed out; it may restart the clock.

        An import is never interrupted: if the timeout is reached while ``frame`` (the innermost stack frame
        of the answer's thread, or None) is inside one, restart the clock and return False.
        """
        now = time.monotonic()
        wall, cpu = now - self.wall, time.process_time() - self.cpu
        starved = wall / 10 < cpu < self.seconds  # it computes, but other programs take the CPU too
        if now <= self.latest and (wall < self.seconds or starved):
            return False
        importing = _is_within("<frozen importlib._bootstrap>", frame)
        if importing:  # a half-imported library would stay broken for the rest of the session
            self.wall, self.cpu = now, time.process_time()
        return not importing


def _run_with_alarm(function: Callable[[], Any], seconds: float) -> Any:
    """Call ``function()`` with a time limit kept by SIGALRM; return its result, or None on a timeout."""
    deadline, timed_out, finished = _Deadline(seconds), False, False

    def trace(frame: FrameType, event: str, value: object) -> Any:
        """Raise `Stop` at the next line of the learner's code, except while an exception propagates."""
        if finished or _is_library(frame.f_code):
            return None
        if event != "exception":
            raise Stop
        return trace

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        """Handle SIGALRM: raise `Stop` once the deadline has expired."""
        nonlocal timed_out
        if finished or not deadline.expired(frame):
            return
        # C++ may call the simulated device where no exception is allowed. And an answer may catch every
        # exception: from the second alarm on, the next line of its own code raises too, even in an
        # ``except`` block.
        in_device = _is_within(_SIMGPU, frame) and not _is_within(_CLUSTER, frame)
        if in_device or timed_out:
            while frame is not None:
                if not _is_library(frame.f_code):
                    frame.f_trace, frame.f_trace_opcodes = trace, in_device
                frame = frame.f_back
            sys.settrace(trace)
        timed_out = True
        if not in_device:
            raise Stop

    handler, timer = signal.signal(signal.SIGALRM, on_alarm), signal.getitimer(signal.ITIMER_REAL)[0]
    signal.setitimer(signal.ITIMER_REAL, seconds, _INTERVAL_SECONDS)
    try:
        value = function()
        finished = True
        return None if timed_out else value
    except Stop:
        return None
    finally:
        finished = True
        signal.setitimer(signal.ITIMER_REAL, max(timer - seconds, 0.01) if timer else 0)
        signal.signal(signal.SIGALRM, handler)


def _run_in_thread(function: Callable[[], Any], seconds: float) -> Any:
    """Call ``function()`` in a thread with a time limit; return its result, or None on a timeout."""
    value = None

    def work() -> None:
        nonlocal value
        with suppress(Stop):
            value = function()

    thread = threading.Thread(target=work, daemon=True, name="exercise-check")
    deadline = _Deadline(seconds)
    thread.start()
    while thread.is_alive() and not deadline.expired(_current_frame(thread)):
        thread.join(min(seconds, _INTERVAL_SECONDS))
    until = time.monotonic() + 1
    while thread.is_alive() and time.monotonic() < until:
        if not _is_within(_SIMGPU, _current_frame(thread)):
            _raise_in_thread(thread, Stop)
        thread.join(0.1)
    return value


def _current_frame(thread: threading.Thread) -> FrameType | None:
    """Return the innermost stack frame of a thread, or None if it does not run."""
    return sys._current_frames().get(thread.ident or 0)


def _raise_in_thread(thread: threading.Thread, kind: type[BaseException]) -> None:
    """Raise an exception asynchronously in a thread, at its next line of Python."""
    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(kind))


def _is_library(code: CodeType) -> bool:
    """Return whether code is the course's, Python's or an installed package's, not the learner's."""
    return code.co_filename.startswith(_LIBRARIES)


def _is_within(file: str, frame: FrameType | None) -> bool:
    """Return whether a library frame above the learner's innermost frame is in a file, or below a folder.

    ``file`` is a path prefix; ``frame`` is the innermost frame.
    """
    while frame is not None and _is_library(frame.f_code):
        if frame.f_code.co_filename.startswith(file):
            return True
        frame = frame.f_back
    return False


# --- Context managers that restore state


@contextmanager
def _stop_new_threads_and_processes() -> Iterator[None]:
    """On exit, stop threads (within one second) and kill processes that the block started."""
    threads, children = set(threading.enumerate()), _child_processes()
    yield
    until = time.monotonic() + 1
    while time.monotonic() < until:
        new_threads = [t for t in threading.enumerate() if t not in threads and _runs_answer(t)]
        if not new_threads:
            break
        for thread in new_threads:
            if isinstance(thread, threading.Timer):
                thread.cancel()
            _raise_in_thread(thread, SystemExit)  # which ends a thread silently
        time.sleep(0.005)
    for child in _child_processes() - children:
        if not child.daemon:  # a DataLoader's workers end with it
            child.kill()


def _runs_answer(thread: threading.Thread) -> bool:
    """Return whether a thread runs the learner's code, rather than a library's (a progress bar, a pool)."""
    target = getattr(thread, "_target", None) or type(thread).run
    code, frame = getattr(target, "__code__", None), _current_frame(thread)
    if isinstance(thread, threading.Timer) or (code and not _is_library(code)):
        return True
    while frame is not None and _is_library(frame.f_code):
        frame = frame.f_back
    return frame is not None


def _child_processes() -> set[Any]:
    """Return the live child processes that ``multiprocessing`` started."""
    module = sys.modules.get("multiprocessing")
    return set(module.active_children()) if module else set()


def random_states() -> dict[str, Any]:
    """Return the states of the global random number generators by library: PyTorch, Python, NumPy."""
    import numpy as np
    import torch

    return {
        "PyTorch": torch.get_rng_state(),
        "Python": random.getstate(),
        "NumPy": np.random.get_state(),  # noqa: NPY002  (the state a learner's np.random.rand uses)
    }


@contextmanager
def _restored_python_state() -> Iterator[None]:
    """On exit, restore RNG states, environment variables, working directory, warnings and settings of sys."""
    import numpy as np
    import torch

    states, environment, folder = random_states(), dict(os.environ), os.getcwd()
    trace, profile, recursion_limit = sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()
    path, callbacks, collects = sys.path[:], gc.callbacks[:], gc.isenabled()
    interrupt = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        yield
    sys.settrace(trace)
    sys.setprofile(profile)
    sys.setrecursionlimit(recursion_limit)
    sys.path[:], gc.callbacks[:] = path, callbacks
    (gc.enable if collects else gc.disable)()
    if _is_on_main_thread() and signal.getsignal(signal.SIGINT) is not interrupt:
        signal.signal(signal.SIGINT, interrupt)
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
    os.chdir(folder)
    random.setstate(states["Python"])
    np.random.set_state(states["NumPy"])  # noqa: NPY002
    torch.set_rng_state(states["PyTorch"])


@contextmanager
def _restored_torch_state() -> Iterator[None]:
    """Run the block with PyTorch's default modes and one thread; on exit, restore what it changed.

    That is the modes, the default device, global module hooks, settings and the simulated devices.
    """
    import torch
    from torch.nn.modules import module

    import simgpu
    from simgpu.machine import MACHINE

    device = modes()[2]
    torch.set_default_device(None)
    before = modes()
    hooks = [table for name, table in vars(module).items() if name.startswith("_global")]
    hooks = [(table, dict(table)) for table in hooks if isinstance(table, dict)]
    calls = [(getattr(torch, f"get_{name}"), getattr(torch, f"set_{name}")) for name in _SWITCHES]
    switches = [(read(), read, write) for read, write in calls]
    flags = [(getattr(torch.backends, backend), name) for backend, name in _FLAGS]
    flags = [(backend, name, getattr(backend, name)) for backend, name in flags]
    enabled, devices = simgpu.enabled(), (MACHINE.devices[:], MACHINE.counting[:], MACHINE.current)
    kinds = filter(torch.amp.is_autocast_available, ("cpu", "cuda"))
    autocast_dtypes = {kind: torch.get_autocast_dtype(kind) for kind in kinds}
    torch.set_num_threads(1)  # enough for small tensors; a second would spin on a busy machine
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))  # restores grad mode and autocast, too
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        # Not by `with torch.autocast(...)`: casts of weights stay cached until the outermost one is left,
        # so an answer's second step would compute with the weights of its first.
        for kind in autocast_dtypes:
            torch.set_autocast_enabled(kind, False)
        yield
    restore_modes(before)
    torch.set_default_device(device and device.device)
    for table, old in hooks:
        table.clear()
        table.update(old)
    for old, read, write in switches:
        if read() != old:
            write(old)
    for backend, name, old in flags:
        if getattr(backend, name) != old:
            setattr(backend, name, old)
    for kind, dtype in autocast_dtypes.items():
        torch.set_autocast_dtype(kind, dtype)
    torch.clear_autocast_cache()
    if enabled:
        MACHINE.devices[:], MACHINE.counting[:], MACHINE.current = devices


def modes() -> tuple[int, int, Any]:
    """Return the depths of the stacks of dispatch modes and function modes, and the default device's mode."""
    import torch

    device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), device


def restore_modes(before: tuple[int, int, Any]) -> None:
    """Exit the modes that were entered but not exited since `modes` returned ``before``."""
    import torch
    from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
    from torch.utils import _python_dispatch as dispatch

    if modes() == before:
        return
    # PyTorch 2.10 frees a mode twice if nothing else refers to it; these lists do.
    functions = _get_current_function_mode_stack()
    while functions[before[1] :] and functions[-1] is not modes()[2]:
        TorchFunctionMode.__exit__(functions.pop(), None, None, None)
    if modes()[2] is not before[2]:
        torch.set_default_device(before[2] and before[2].device)
    for mode in reversed(dispatch._get_current_dispatch_mode_stack()[before[0] :]):
        dispatch.TorchDispatchMode.__exit__(mode, None, None, None)


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Limit the memory that the block may allocate (Linux only): half of what is free, 4 GiB at most.

    RLIMIT_DATA counts writable memory; RLIMIT_AS would count addresses too, of which CUDA reserves many.
    """
    before = None
    with suppress(ImportError, OSError, ValueError):  # not Linux
        import resource

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = pages * resource.getpagesize() + min(
            max(_available_memory_bytes() // 2, 2**29), _MAX_MEMORY_BYTES
        )
        limit = min([limit, *(most for most in (soft, hard) if most != resource.RLIM_INFINITY)])
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        before = soft, hard
    yield
    if before:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _available_memory_bytes() -> int:
    """Return how many bytes of memory are available on the machine, or in the container if that has fewer."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        group = Path("/sys/fs/cgroup")
        with suppress(OSError, ValueError):
            free = min(free, int((group / limit).read_text()) - int((group / used).read_text()))
    return free
