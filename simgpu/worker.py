"""A worker process with the simulated device, for a process that trains on a real accelerator.

PyTorch trains on one kind of accelerator in a process (`disable_for`). So the simulated device is in a second
process, which is started at the first call and kept. Functions are pickled by value (cloudpickle), also those
defined in a notebook; tensors and devices of the real accelerator become those of the simulated one.
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
LIMIT_SECONDS = 600.0
"""The timeout of a call, in seconds."""

_workers: list[subprocess.Popen[bytes]] = []


class WorkerError(Exception):
    """A call could not reach the worker or return: something cannot be pickled, or the process ended."""


def needed() -> bool:
    """Return whether calls go to the worker.

    True if this process trains on a real accelerator and cloudpickle is installed.
    """
    from . import backend

    return backend.is_disabled() and importlib.util.find_spec("cloudpickle") is not None


def unavailable_reason() -> str | None:
    """Return why there is no simulated device, neither here nor in a worker, as one sentence, or None."""
    return None if needed() else simgpu.unavailable_reason()


def run_in_worker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: run a module-level function where the simulated device is, here or in the worker.

    See `call`.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(wrapper if needed() else function, *args, **kwargs)

    return wrapper


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function where the simulated device is, here or in the worker, and return its result.

    Its output in the worker is printed here when it has ended, and its exceptions are raised here. After
    `LIMIT_SECONDS` seconds the worker is killed. On Ctrl-C it is killed, too.

    Raises
    ------
    WorkerError
        If function, arguments or result cannot be pickled, or the worker ended.
    """
    if not needed():
        return function(*args, **kwargs)
    try:
        request = _pickle((function, args, kwargs, _notebook_cells(), list(sys.path), os.getcwd()))
    except Exception as error:  # objects raise different errors if they cannot be pickled
        raise WorkerError(f"{type(error).__name__}: {error}") from error
    worker = _worker()
    timer = threading.Timer(LIMIT_SECONDS, worker.kill)
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
    """Return the `linecache` entries of the notebook's cells, for tracebacks in the worker.

    The modification time is None, so that linecache does not look for a file.
    """
    cells = [(n, e) for n, e in linecache.cache.items() if "ipykernel" in n and len(e) == 4]
    return {name: (size, None, lines, full) for name, (size, _, lines, full) in cells}


def _worker() -> subprocess.Popen[bytes]:
    """Return the running worker process; start one if there is none, and print that it starts."""
    if not _workers or _workers[-1].poll() is not None:
        print(_("A second process with the simulated GPU starts: some seconds, once."), flush=True)
        path = os.pathsep.join(filter(None, sys.path))
        process = subprocess.Popen(
            [sys.executable, "-m", "simgpu.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_NO_REAL_DEVICES, "PYTHONPATH": path},
        )
        atexit.register(process.kill)
        _workers[:] = [process]
    return _workers[-1]


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """Kill a worker."""
    _workers.clear()  # now, because it may still run for a moment
    worker.kill()
    with contextlib.suppress(OSError):  # closing flushes unwritten data
        worker.stdin.close()


def _pickle(data: Any) -> bytes:
    """Pickle data with cloudpickle; tensors and devices of a real accelerator unpickle on ``sim:0``."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            if isinstance(value, CodeType):  # complete: cloudpickle drops the name of its cell
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
    """Rebuild a tensor or Parameter on the simulated device; called by unpickling."""
    tensor = values.to(simgpu.first())
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _write(file: BinaryIO, data: bytes) -> None:
    """Write data with its length in front."""
    file.write(len(data).to_bytes(8, "big") + data)
    file.flush()


def _read(file: BinaryIO) -> bytes:
    """Read data that `_write` wrote; raise EOFError if the file has ended."""
    size = file.read(8)
    if len(size) < 8:
        raise EOFError
    return file.read(int.from_bytes(size, "big"))


def serve() -> None:
    """Run the calls that arrive on stdin until it is closed; write the replies to stdout."""
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of C++ must not mix with the replies
    while True:
        try:
            request = _read(requests)
        except EOFError:
            return
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            error = value = None
            try:
                value = _run_request(request)
            except BaseException as raised:  # noqa: BLE001  (all are raised in the caller)
                error = raised.with_traceback(None)
        _write(replies, _reply(printed.getvalue(), error, value))


def _run_request(request: bytes) -> Any:
    """Run a pickled call with the sender's ``sys.path``, working directory and notebook cells."""
    function, args, kwargs, lines, path, folder = pickle.loads(request)
    linecache.cache.update(lines)
    sys.path[:] = path
    os.chdir(folder)
    return function(*args, **kwargs)


def _reply(printed: str, error: BaseException | None, value: Any) -> bytes:
    """Pickle (output, exception or None, result); a WorkerError if that cannot be pickled."""
    try:
        return _pickle((printed, error, value))
    except Exception as failure:  # noqa: BLE001  (a result that cannot be pickled)
        return pickle.dumps((printed, WorkerError(f"{type(failure).__name__}: {failure}"), None))


if __name__ == "__main__":
    from simgpu.worker import serve as serve_calls

    serve_calls()
