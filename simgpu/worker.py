"""A worker process with the simulated device, for a process that trains on a real one.

PyTorch trains on one kind of accelerator in a process (`disable_for`). So a second process has the simulated
device, starts at the first call and stays. Functions travel by value (cloudpickle), also those written in a
notebook; tensors and devices of the real accelerator arrive there as the simulated one's, as if the program
had run on it from its first line.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import io
import linecache
import marshal
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, BinaryIO

import torch

import simgpu

from .messages import _

_NO_REAL_DEVICES = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"), "")
_REAL_TYPES = ("cuda", "xpu", "mps")
LIMIT = 600.0
"""For how many seconds a call may take."""

_workers: list[subprocess.Popen[bytes]] = []


class WorkerError(Exception):
    """A call failed in transport: something cannot be pickled, or the worker process ended."""


def needed() -> bool:
    """Return whether this process trains on a real accelerator, so that calls go to the worker."""
    from . import backend

    return backend.is_disabled() and importlib.util.find_spec("cloudpickle") is not None


def unavailable_reason() -> str | None:
    """Return why the simulated device can be had neither here nor in another process, or None."""
    return None if needed() else simgpu.unavailable_reason()


def run_in_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a module's function: it runs where the simulated device is, here or in the worker."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(wrapper if needed() else function, *args, **kwargs)

    return wrapper


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function returns where the simulated device is, here or in another process.

    What it prints in the worker is printed here, and its errors are raised here. After `LIMIT` seconds the
    worker is ended.

    Raises
    ------
    WorkerError
        Where function, arguments or result cannot be pickled, or the worker ended.
    """
    if not needed():
        return function(*args, **kwargs)
    try:
        request = _pickle((function, args, kwargs, _notebook_cells(), list(sys.path), os.getcwd()))
    except Exception as error:  # whatever does not travel says it in its own way
        raise WorkerError(f"{type(error).__name__}: {error}") from error
    worker = _worker()
    timer = threading.Timer(LIMIT, worker.kill)
    timer.start()
    try:
        _write(worker.stdin, request)
        printed, error, value = pickle.loads(_read(worker.stdout))
    except (OSError, EOFError, pickle.PickleError, AttributeError) as failure:
        _stop(worker)
        raise WorkerError("the process with the simulated device ended") from failure
    except BaseException:  # Ctrl-C
        _stop(worker)
        raise
    finally:
        timer.cancel()
    print(printed, end="")
    if error is not None:
        raise error
    return value


def _notebook_cells() -> dict[str, Any]:
    """The lines of a notebook's cells, which errors show; without a time they count as those of no file."""
    cells = [(n, e) for n, e in linecache.cache.items() if "ipykernel" in n and len(e) == 4]
    return {name: (size, None, lines, full) for name, (size, _, lines, full) in cells}


def _worker() -> subprocess.Popen[bytes]:
    if not _workers or _workers[-1].poll() is not None:
        print(_("A second process with the simulated GPU starts: some seconds, once."), flush=True)
        path = os.pathsep.join(filter(None, sys.path))
        started = subprocess.Popen(
            [sys.executable, "-m", "simgpu.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_NO_REAL_DEVICES, "PYTHONPATH": path},
        )
        atexit.register(started.kill)
        _workers[:] = [started]
    return _workers[-1]


def _stop(worker: subprocess.Popen[bytes]) -> None:
    _workers.clear()  # it may live for a moment more
    worker.kill()
    with contextlib.suppress(OSError):  # what was not written yet
        worker.stdin.close()


def _pickle(data: Any) -> bytes:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, CodeType):  # whole: cloudpickle leaves out from which cell it is
                return marshal.loads, (marshal.dumps(value),)
            if isinstance(value, torch.device) and value.type in _REAL_TYPES:
                return simgpu.first, ()
            if isinstance(value, torch.Tensor) and value.device.type in _REAL_TYPES:
                is_parameter = isinstance(value, torch.nn.Parameter)
                return _tensor, (value.detach().cpu(), value.requires_grad, is_parameter)
            return super().reducer_override(value)

    with io.BytesIO() as file:
        Pickler(file).dump(data)
        return file.getvalue()


def _tensor(values: torch.Tensor, requires_grad: bool, is_parameter: bool) -> torch.Tensor:
    tensor = values.to(simgpu.first())
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(len(data).to_bytes(8, "big") + data)
    file.flush()


def _read(file: BinaryIO) -> bytes:
    size = file.read(8)
    if len(size) < 8:
        raise EOFError
    return file.read(int.from_bytes(size, "big"))


def serve() -> None:
    """Run the calls that come on stdin until it is closed."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what C++ prints is no answer
    while True:
        try:
            request = _read(requests)
        except EOFError:
            return
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            error = value = None
            try:
                value = _answer(request)
            except BaseException as raised:  # noqa: BLE001  (all of them go back)
                error = raised.with_traceback(None)
        _write(answers, _reply(printed.getvalue(), error, value))


def _answer(request: bytes) -> Any:
    function, args, kwargs, lines, path, folder = pickle.loads(request)
    linecache.cache.update(lines)
    sys.path[:] = path
    os.chdir(folder)
    return function(*args, **kwargs)


def _reply(printed: str, error: BaseException | None, value: Any) -> bytes:
    try:
        return _pickle((printed, error, value))
    except Exception as failure:  # noqa: BLE001  (a result that does not travel)
        return pickle.dumps((printed, WorkerError(f"{type(failure).__name__}: {failure}"), None))


if __name__ == "__main__":
    from simgpu.worker import serve as answer_calls

    answer_calls()
