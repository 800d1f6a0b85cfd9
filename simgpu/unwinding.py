"""Errors in the middle of a backward pass: without this they end the process.

Where an operation of the backward pass fails, out of memory for example, PyTorch's engine puts the
stream back and asks the device's guard for its type: Python code, called while an error is pending. Its
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

_taken: list[BaseException] = []
_TYPE = torch._C._autograd.DeviceType.PrivateUse1


class Guard(torch._C._acc.DeviceGuard):
    """Tells PyTorch the device's type, also while an error is pending."""

    def type_(self, _look: Any = ctypes.pythonapi.Py_IsInitialized) -> Any:
        """Return the type; a pending error is kept for `after_backward`."""
        try:
            _look()  # any C function would do: the call raises what is pending
        except BaseException as error:  # noqa: BLE001  (Ctrl-C too)
            _taken.append(error)
        return _TYPE


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
        finally:
            if collecting:
                gc.enable()
        raise error

    torch.autograd._engine_run_backward = run_and_raise
