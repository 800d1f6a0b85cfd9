"""What an answer may not call, and what it gets in the place of loops that nothing can stop."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .torch_state import Undo


class NotInACheckError(RuntimeError):
    """Raised where an answer calls what would end, double or hang the notebook's process."""


def refuse(own: dict[str, Any]) -> Undo:
    """Refuse what would end, double or hang the process, also where the learner's code has taken it from its module."""
    home = os.getpid()
    put: list[tuple[dict[str, Any], str, Any]] = []

    def refused(owner: ModuleType, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            allowed = (  # in a child it ends the child; a DataLoader's workers are forked
                os.getpid() != home
                or (name == "fork" and caller.startswith("multiprocessing"))
                or (name == "signal" and args[0] != getattr(signal, "SIGALRM", None))
                or (name == "kill" and args[0] not in (home, 0, -1))
            )
            if allowed:
                return original(*args, **kwargs)
            raise NotInACheckError(f"{owner.__name__}.{name}() is not possible within a check.")

        taken = [n for n, f in own.items() if f is original]
        own.update(dict.fromkeys(taken, call))
        put.extend((own, n, original) for n in taken)
        put.append((vars(owner), name, original))
        setattr(owner, name, call)

    for owner, names in _REFUSED.items():
        for name in filter(functools.partial(hasattr, sys.modules.get(owner)), names.split()):
            refused(sys.modules[owner], name)
    for name in ("setrecursionlimit", "setswitchinterval"):
        put.append((vars(sys), name, getattr(sys, name)))
        setattr(sys, name, lambda value: None)
    return lambda: [names.update({name: original}) for names, name, original in put]


def loop_in_python(names: dict[str, Any]) -> Undo:
    """Give the learner's code a `sum()` and the like that can be stopped; those in C look at no signal."""
    ours = {f.__name__: _item_by_item(f) for f in (sum, max, min, any, all)}
    put = {name: f for name, f in ours.items() if name not in names}
    if str(names.get("__name__")).startswith(("course_utils", "course_lessons")):
        return lambda: None
    names.update(put)
    return lambda: [names.pop(name) for name, f in put.items() if names.get(name) is f]


def _item_by_item(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **more: Any) -> Any:
        if len(args) == 1 or (args and function.__name__ == "sum"):
            args = ((item for item in args[0]), *args[1:])
        return function(*args, **more)

    return call


_SIGNALS = "setitimer alarm raise_signal pthread_kill"
_ENDS = "_exit abort kill killpg fork forkpty closerange execv execve "
_REFUSED = {
    "os": _ENDS + " ".join(n for n in dir(os) if n[:4] == "exec" and n not in _ENDS.split()),
    os.name: _ENDS,
    "signal": _SIGNALS + " signal pthread_sigmask",
    "_signal": _SIGNALS,
    "resource": "setrlimit prlimit",
    "builtins": "input breakpoint",
    "sys": "addaudithook",
    "time": "clock_settime clock_settime_ns",
}
