"""Run a learner's answer within a limit of time and of memory, and restore global state afterwards.

On the main thread of Linux and macOS an alarm ends what takes too long: a signal also interrupts what waits
(locks, sleeps, queues, processes). Elsewhere (Windows, other threads) the answer runs in a thread of its own, which
gets the exception at its next line of Python; a thread that never comes back is left behind, and the notebook goes on.

What stays outside: a loop in C that looks at no signal (``deque(count())``), a segmentation fault, an answer that
ends its own process (``os._exit``) or replaces functions of Python or PyTorch. Memory is limited on Linux only.
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

_running = threading.Lock()
_ROOT = Path(__file__).parents[2]
_LIBRARIES = (
    *(str(_ROOT / name) for name in ("course_utils", "course_lessons", "simgpu")),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(site.getusersitepackages(), "<frozen", "<string>"),
)
_SIMGPU, _CLUSTER = str(_ROOT / "simgpu"), str(_ROOT / "simgpu" / "cluster")
_AGAIN = 0.25  # seconds from one alarm to the next
_MOST_MEMORY = 4 * 2**30


class Stop(BaseException):
    """Raised in an answer that ran out of time."""


def run(function: Callable[[], Any], seconds: float) -> tuple[bool, Any]:
    """Call a function with a time limit and a memory limit; restore the global state that it changed.

    Parameters
    ----------
    function
        What to call, without arguments.
    seconds
        The time limit, of a machine that has time for it.

    Returns
    -------
    bool
        Whether it finished in time.
    object
        What it returned; None where it did not finish.

    Raises
    ------
    RuntimeError
        If it is called within itself.
    """
    if not _running.acquire(blocking=False):
        raise RuntimeError("call check() below the function, not in it")
    try:
        with ExitStack() as stack:
            for restored in _RESTORED:
                stack.enter_context(restored())
            on_main_thread = threading.current_thread() is threading.main_thread()
            if on_main_thread and hasattr(signal, "setitimer"):
                return _with_alarm(function, seconds)
            return _in_thread(function, seconds)
    finally:
        _running.release()


# --- The time limit


class _Clock:
    """The time that an answer had: where others keep the processor from it, it is given more."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.latest = seconds, time.monotonic() + seconds + 60
        self.restart()

    def restart(self) -> None:
        """Begin to count again."""
        self.wall, self.cpu = time.monotonic(), time.process_time()

    def is_over(self) -> bool:
        """Whether the limit is reached."""
        now = time.monotonic()
        wall, cpu = now - self.wall, time.process_time() - self.cpu
        starved = wall / 10 < cpu < self.seconds  # it computes, and so do other programs
        return now > self.latest or (wall >= self.seconds and not starved)


def _with_alarm(function: Callable[[], Any], seconds: float) -> tuple[bool, Any]:
    clock, rings, finished = _Clock(seconds), 0, False

    def stop(frame: FrameType, event: str, value: object) -> Any:
        """As a trace function: raise in the learner's own code, at a line, and not while an error is raised."""
        if finished or _is_library(frame.f_code):
            return None
        if event != "exception":
            raise Stop
        return stop

    def ring(signum: int, frame: FrameType | None) -> None:
        nonlocal rings
        if finished or not clock.is_over():
            return
        if _is_within("<frozen importlib._bootstrap>", frame):
            clock.restart()  # a library that is imported by half would fail ever after
            return
        rings += 1
        simulated = _is_within(_SIMGPU, frame) and not _is_within(_CLUSTER, frame)
        if simulated or rings > 1:
            # C++ calls the simulated device where it allows no exception; and an answer may catch every exception. So
            # the next line of the learner's own code raises too, be it in an ``except`` block.
            while frame is not None:
                if not _is_library(frame.f_code):
                    frame.f_trace, frame.f_trace_opcodes = stop, simulated
                frame = frame.f_back
            sys.settrace(stop)
        if not simulated:
            raise Stop

    handler, timer = signal.signal(signal.SIGALRM, ring), signal.getitimer(signal.ITIMER_REAL)[0]
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        value = function()
        finished = True
        return rings == 0, value if rings == 0 else None
    except Stop:
        return False, None
    finally:
        finished = True
        signal.setitimer(signal.ITIMER_REAL, max(timer - seconds, 0.01) if timer else 0)
        signal.signal(signal.SIGALRM, handler)


def _in_thread(function: Callable[[], Any], seconds: float) -> tuple[bool, Any]:
    values: list[Any] = []

    def work() -> None:
        with suppress(Stop):
            values.append(function())

    thread = threading.Thread(target=work, daemon=True, name="exercise-check")
    clock = _Clock(seconds)
    thread.start()
    while thread.is_alive() and not clock.is_over():
        thread.join(min(seconds, _AGAIN))
    until = time.monotonic() + 1
    while thread.is_alive() and time.monotonic() < until:
        if not _is_within(_SIMGPU, sys._current_frames().get(thread.ident)):
            _raise_in(thread, Stop)
        thread.join(0.1)
    return (True, values[0]) if values else (False, None)


def _raise_in(thread: threading.Thread, kind: type[BaseException]) -> None:
    """Raise an exception in a thread, at its next line of Python."""
    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(kind))


def _is_library(code: CodeType) -> bool:
    """Whether code is of the course, of Python's or of an installed package's."""
    return code.co_filename.startswith(_LIBRARIES)


def _is_within(file: str, frame: FrameType | None) -> bool:
    """Whether a file, or one below a folder, is at work for the innermost code of the learner's."""
    while frame is not None and _is_library(frame.f_code):
        if frame.f_code.co_filename.startswith(file):
            return True
        frame = frame.f_back
    return False


# --- What is restored


@contextmanager
def _threads_and_processes() -> Iterator[None]:
    """End the threads and processes that an answer leaves behind, where they can be stopped."""
    threads, children = set(threading.enumerate()), _children()
    yield
    until = time.monotonic() + 1
    while time.monotonic() < until:
        new = [t for t in threading.enumerate() if t not in threads and not _is_ours(t)]
        if not new:
            break
        for thread in new:
            if isinstance(thread, threading.Timer):
                thread.cancel()
            _raise_in(thread, SystemExit)  # it ends without a word
        time.sleep(0.005)
    for child in _children() - children:
        if not child.daemon:  # a DataLoader's workers end with it
            child.kill()


def _is_ours(thread: threading.Thread) -> bool:
    """Whether a thread runs nothing of the learner's, such as the progress bar's or a pool's own."""
    target = getattr(thread, "_target", None) or type(thread).run
    frame = sys._current_frames().get(thread.ident)
    if isinstance(thread, threading.Timer) or not _is_library(getattr(target, "__code__", _NONE)):
        return False
    while frame is not None:
        if not _is_library(frame.f_code):
            return False
        frame = frame.f_back
    return True


_NONE = compile("", "<string>", "exec")


def _children() -> set[Any]:
    module = sys.modules.get("multiprocessing")
    return set(module.active_children()) if module else set()


def random_states() -> dict[str, Any]:
    """Return the state of each global random number generator."""
    import numpy as np
    import torch

    return {
        "PyTorch": torch.get_rng_state(),
        "Python": random.getstate(),
        "NumPy": np.random.get_state(),  # noqa: NPY002  (the state a learner's np.random.rand uses)
    }


@contextmanager
def _python_state() -> Iterator[None]:
    """Restore random numbers, environment, working directory, warnings, tracing and the like."""
    import numpy as np
    import torch

    states, environment, folder = random_states(), dict(os.environ), os.getcwd()
    trace, profile, deepest = sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()
    path, callbacks, collects = sys.path[:], gc.callbacks[:], gc.isenabled()
    on_main_thread = threading.current_thread() is threading.main_thread()
    interrupt = signal.getsignal(signal.SIGINT)
    with warnings.catch_warnings():
        yield
    sys.settrace(trace)
    sys.setprofile(profile)
    sys.setrecursionlimit(deepest)
    sys.path[:], gc.callbacks[:] = path, callbacks
    (gc.enable if collects else gc.disable)()
    if on_main_thread and signal.getsignal(signal.SIGINT) is not interrupt:
        signal.signal(signal.SIGINT, interrupt)
    if dict(os.environ) != environment:
        os.environ.clear()
        os.environ.update(environment)
    os.chdir(folder)
    random.setstate(states["Python"])
    np.random.set_state(states["NumPy"])  # noqa: NPY002
    torch.set_rng_state(states["PyTorch"])


@contextmanager
def _torch_state() -> Iterator[None]:
    """Give the answer PyTorch's defaults, and restore modes, hooks, switches and the simulated devices."""
    import torch

    import simgpu
    from simgpu.machine import MACHINE

    device = modes()[2]
    torch.set_default_device(None)
    before, hooks = modes(), _global_hooks()
    hooks_before = [dict(table) for table in hooks]
    saved = torch._C._autograd
    saved_hooks = saved._top_saved_tensors_default_hooks(True)
    switches = [(read(), read, write) for read, write in _switches()]
    kinds = [kind for kind in ("cpu", "cuda") if torch.amp.is_autocast_available(kind)]
    dtypes = [torch.get_autocast_dtype(kind) for kind in kinds]
    enabled, devices = simgpu.enabled(), (MACHINE.devices[:], MACHINE.counting[:], MACHINE.current)
    torch.set_num_threads(1)  # small tensors take one; a second spins on a busy machine
    with torch.inference_mode(False):  # it saves grad mode and, with the dispatch keys, autocast
        for kind in kinds:
            torch.set_autocast_enabled(kind, False)
        yield
    restore_modes(before)
    torch.set_default_device(device and device.device)
    for table, old in zip(hooks, hooks_before, strict=True):
        table.clear()
        table.update(old)
    while saved._top_saved_tensors_default_hooks(True) != saved_hooks:
        saved._pop_saved_tensors_default_hooks()
    for old, read, write in switches:
        if read() != old:
            write(old)
    for kind, dtype in zip(kinds, dtypes, strict=True):
        torch.set_autocast_dtype(kind, dtype)
    torch.clear_autocast_cache()
    if enabled:
        MACHINE.devices[:], MACHINE.counting[:], MACHINE.current = devices


def modes() -> tuple[int, int, Any]:
    """Return how many dispatch modes and function modes are on, and the default device's mode."""
    import torch

    device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), device


def restore_modes(before: tuple[int, int, Any]) -> None:
    """Leave the modes that an answer has entered and not left, and restore the default device.

    Parameters
    ----------
    before
        What `modes` returned.
    """
    import torch
    from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
    from torch.utils import _python_dispatch as dispatch

    if modes() == before:
        return
    # PyTorch 2.10 frees a mode twice where nothing else holds it: these lists do.
    functions = _get_current_function_mode_stack()
    while functions[before[1] :] and functions[-1] is not modes()[2]:
        TorchFunctionMode.__exit__(functions.pop(), None, None, None)
    if modes()[2] is not before[2]:
        torch.set_default_device(before[2] and before[2].device)
    dispatching = dispatch._get_current_dispatch_mode_stack()[before[0] :]
    for mode in reversed(dispatching):
        dispatch.TorchDispatchMode.__exit__(mode, None, None, None)


def _global_hooks() -> list[dict[Any, Any]]:
    """Return the tables of hooks that hold for every module."""
    from torch.nn.modules import module

    names = [name for name in vars(module) if name.startswith("_global")]
    return [vars(module)[name] for name in names if isinstance(vars(module)[name], dict)]


def _switches() -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """Return, for each global switch of PyTorch's, what reads it and what sets it."""
    import torch

    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    return [
        (torch.get_default_dtype, torch.set_default_dtype),
        (torch.get_num_threads, torch.set_num_threads),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
        (lambda: mkldnn.enabled, lambda on: setattr(mkldnn, "enabled", on)),
        (lambda: cudnn.benchmark, lambda on: setattr(cudnn, "benchmark", on)),
        (lambda: cudnn.deterministic, lambda on: setattr(cudnn, "deterministic", on)),
    ]


@contextmanager
def _memory_limit() -> Iterator[None]:
    """Limit what an answer may allocate: by what is writable, not by addresses, of which CUDA takes many."""
    before = None
    with suppress(ImportError, OSError, ValueError):  # not Linux
        import resource

        data = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5])
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = data * resource.getpagesize() + _free_memory()
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        if soft == resource.RLIM_INFINITY or limit < soft:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
            before = soft, hard
    yield
    if before:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _free_memory() -> int:
    """Return how many bytes a check may take: half of what is free, at most 4 GiB."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    group = Path("/sys/fs/cgroup")
    for limit, used in (
        (group / "memory.max", group / "memory.current"),
        (group / "memory/memory.limit_in_bytes", group / "memory/memory.usage_in_bytes"),
    ):
        with suppress(OSError, ValueError):
            free = min(free, int(limit.read_text()) - int(used.read_text()))
    return min(max(free // 2, 2**29), _MOST_MEMORY)


_RESTORED = (_python_state, _torch_state, _threads_and_processes, _memory_limit)
