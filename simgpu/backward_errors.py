"""Exceptions raised during a backward pass: without this module they abort the process.

If an operation of the backward pass fails, out of memory for example, PyTorch's engine restores the
stream and asks the device guard, which is in Python, for its type while an exception is pending. Python
would reject the guard's result, in C++ code that must not throw, and the process would abort. So the guard
fetches and stores the pending exception, and it is raised again when the engine has returned. Until then no
garbage collection may begin: it would clear the exception.
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

_pending: list[BaseException] = []
_TYPE = torch._C._autograd.DeviceType.PrivateUse1


def _device_type(self: Any, _raise_pending: Any = ctypes.pythonapi.Py_IsInitialized) -> Any:
    """Return the device type for `Guard`; store a pending exception for `patch_engine`."""
    try:
        _raise_pending()  # any C function would do: the call raises what is pending
    except BaseException as error:  # noqa: BLE001  (Ctrl-C too)
        _pending.append(error)
    return _TYPE


def _store_pending(address: int | None, *_: Any) -> Any:
    """Store the exception at the address that ``PyErr_GetRaisedException`` returned, if not null."""
    if address:
        error = ctypes.cast(address, ctypes.py_object)
        _pending.append(error.value)
        ctypes.pythonapi.Py_DecRef(error)
    return _TYPE


if hasattr(ctypes.pythonapi, "PyErr_GetRaisedException"):
    # From Python 3.12 on debuggers and profilers are told of each call of a Python function, and fail where
    # an error is pending. Of a C function they are not.
    _device_type = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyErr_GetRaisedException", ctypes.pythonapi))
    _device_type.errcheck = _store_pending


class Guard(torch._C._acc.DeviceGuard):
    """The device guard that PyTorch's engine asks for the device type, also while an exception is pending."""

    type_ = _device_type


def patch_engine() -> None:
    """Patch autograd's ``_engine_run_backward`` to raise the exception that `Guard` stored.

    Garbage collection is off during a backward pass.
    """
    run_backward = torch.autograd._engine_run_backward

    @functools.wraps(run_backward)
    def run_and_raise(*args: Any, **kwargs: Any) -> Any:
        _pending.clear()
        collecting = gc.isenabled()
        gc.disable()
        try:
            return run_backward(*args, **kwargs)
        except SystemError:  # "returned NULL without setting an exception"
            if not _pending:
                raise
            error = _pending[0].with_traceback(None)
            _pending.clear()
        except RuntimeError as raised:
            if "opt_ready_stream" not in str(raised):
                raise
            error = RuntimeError(TOO_LATE.format("the other"))
        finally:
            if collecting:
                gc.enable()
        raise error

    torch.autograd._engine_run_backward = run_and_raise
