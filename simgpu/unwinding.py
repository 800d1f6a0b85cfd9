"""Errors in the middle of a backward pass: without this they end the process.

Where an operation of the backward pass fails, out of memory for example, PyTorch's engine puts the
stream back and asks the device's guard, which is in Python, for its type while an error is pending. Its
result would be refused, in a place where C++ allows no error, and the process would abort. So the guard
takes the pending error away, and it is raised again when the engine is done. Until the guard has it, no
garbage collection may begin: it would clear the error.
"""

from __future__ import annotations

import ctypes
import functools
import gc
from typing import Any

import torch

TOO_LATE = (
    "This process has the simulated GPU, and PyTorch trains on one kind of accelerator in a process: "
    "start a new one (restart the kernel) to train on {}."
)

_taken: list[BaseException] = []
_TYPE = torch._C._autograd.DeviceType.PrivateUse1


def _look(self: Any, _raise: Any = ctypes.pythonapi.Py_IsInitialized) -> Any:
    """Return the device's type; a pending error is kept for `after_backward`."""
    try:
        _raise()  # any C function would do: the call raises what is pending
    except BaseException as error:  # noqa: BLE001  (Ctrl-C too)
        _taken.append(error)
    return _TYPE


def _keep(address: int | None, *_: Any) -> Any:
    """The same where the pending error has been taken already: at this address, if any."""
    if address:
        error = ctypes.cast(address, ctypes.py_object)
        _taken.append(error.value)
        ctypes.pythonapi.Py_DecRef(error)
    return _TYPE


if hasattr(ctypes.pythonapi, "PyErr_GetRaisedException"):
    # From Python 3.12 on debuggers and profilers hear of each function of Python that begins, and fail where an
    # error is pending. Of a C function they hear nothing.
    _look = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_GetRaisedException", ctypes.pythonapi))
    _look.errcheck = _keep


class Guard(torch._C._acc.DeviceGuard):
    """Tells PyTorch the device's type, also while an error is pending."""

    type_ = _look


def after_backward() -> None:
    """Let the engine raise the error that `Guard` took from it."""
    run = torch.autograd._engine_run_backward

    @functools.wraps(run)
    def run_and_raise(*args: Any, **kwargs: Any) -> Any:
        _taken.clear()
        collecting = gc.isenabled()
        gc.disable()
        try:
            return run(*args, **kwargs)
        except SystemError:  # "returned NULL without setting an exception"
            if not _taken:
                raise
            error = _taken[0].with_traceback(None)
            _taken.clear()
        except RuntimeError as found:
            if "opt_ready_stream" not in str(found):
                raise
            error = RuntimeError(TOO_LATE.format("the other"))
        finally:
            if collecting:
                gc.enable()
        raise error

    torch.autograd._engine_run_backward = run_and_raise
