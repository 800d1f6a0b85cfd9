"""The short form of a check: a function's values over cases, and the mistakes that give others."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .judge import Judge, brief


def near(got: float, right: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return math.isclose(got, right, rel_tol=1e-6, abs_tol=1e-9)


@dataclass(frozen=True)
class OverCases:
    """A check: an answer must give, for every case, what the reference gives.

    Parameters
    ----------
    reference
        The right function.
    cases
        Arguments, a tuple for each case; a function that makes them, where a call may change them.
    twins
        For each diagnosis a wrong function, or several: what a likely mistake computes. A wrong answer gets
        the diagnosis of the twin that it follows over all cases (``Judge.closest``).
    read
        Makes of what the answer gave what is compared, or refuses it.
    alike
        Whether two such values count as equal.
    otherwise
        The diagnosis of an answer that follows no twin; or a function that returns it, of what the answer and
        the reference gave for the first wrong case, and the case.
    situation
        Says in words what a case is; without it, the arguments by their names.
    shown
        Writes a value for the learner.
    """

    reference: Callable[..., Any]
    cases: Sequence[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]]
    twins: Mapping[str, Callable[..., Any] | tuple[Callable[..., Any], ...]]
    read: Callable[[Judge, Any], Any] = Judge.number
    alike: Callable[[Any, Any], bool] = near
    otherwise: str | Callable[..., str] = "wrong-value"
    situation: Callable[..., str] | None = None
    shown: Callable[[Any], str] | None = None

    def __call__(self, answer: Callable[..., Any], judge: Judge) -> None:
        """Refuse an answer at the first case where its value is not the reference's."""
        right = [self.reference(*case) for case in self._made()]
        got: list[Any] = []
        for case, expected in zip(self._made(), right, strict=True):
            got.append(self.read(judge, answer(*case)))
            if not self.alike(got[-1], expected):
                break
        else:
            return
        at = len(got) - 1
        case = self._made()[at]
        otherwise = self.otherwise
        if callable(otherwise):
            otherwise = otherwise(got[at], right[at], *case)

        def read(*case: Any) -> Any:
            return self.read(judge, answer(*case))

        got += [_outcome(read, case) for case in self._made()[at + 1 :]]
        twins = {
            diagnosis: [[_outcome(twin, case) for case in self._made()] for twin in several(twin)]
            for diagnosis, twin in self.twins.items()
        }
        say = self.shown or _short
        judge.closest(
            got,
            right,
            twins,
            alike=self.alike,
            otherwise=otherwise,
            seen=f"{say(got[at])} for {(self.situation or self._arguments)(*case)}",
            expected=say(right[at]),
        )

    def _made(self) -> Sequence[tuple[Any, ...]]:
        return list(self.cases()) if callable(self.cases) else self.cases

    def _arguments(self, *case: Any) -> str:
        names = inspect.signature(self.reference).parameters
        return ", ".join(f"{name}={_short(value)}" for name, value in zip(names, case, strict=True))


def several(twin: Any) -> tuple[Callable[..., Any], ...]:
    """Return a twin, or several, as a tuple."""
    return twin if isinstance(twin, tuple) else (twin,)


class _Failed:
    """Stands for the result of a call that raised, or whose value was refused: like no other."""


def _outcome(function: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    try:
        return function(*case)
    except Exception:  # noqa: BLE001  (whatever it was, there is no result)
        return _Failed()


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else brief(value, 120)
