"""The short form of a check: a function's values over cases, and the mistakes that give others."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from course_language import _

from .judge import Judge
from .values import agree, brief, diff_texts, nearly

DRAWN = 40
"""How many cases are drawn, where a form draws them."""


near = nearly(1e-6, 1e-9)
"""Whether two numbers are the same but for rounding."""


@dataclass(frozen=True)
class ComparesToReference:
    """A check: an answer must give, for every case, what the reference gives.

    Parameters
    ----------
    reference
        The right function.
    cases
        Arguments, a tuple for each case; a function that makes them, where a call may change them.
    known_mistakes
        For each diagnosis a wrong function, or a tuple of several. A wrong answer gets the diagnosis of the
        known mistake that it agrees with (``Judge.closest``).
    run
        Calls a function with a case, ``run(function, *case)``, and returns its result, such as the weights
        that a training function leaves; by default ``function(*case)``. Used for the answer, the reference
        and the known mistakes.
    read
        Converts what the answer returned before it is compared, or refuses it. By default ``Judge.number``.
    look
        ``look(got, *case)`` returns what is compared, from a result and the case as the call left it, such as
        the weights of a model that was trained. Used for the answer, the reference and the known mistakes.
    draw
        Makes one more case, with a ``random.Random``. Cases drawn with a fixed seed join the others.
    alike
        Whether two such values count as equal.
    otherwise
        The diagnosis of an answer that agrees with no known mistake; or a function that returns it, of what
        the answer and the reference gave for the wrong case that is shown, and the case.
    situation
        Describes a case in words; by default its arguments are shown. The first failing case is shown, of
        those drawn the shortest.
    shown
        Formats a value for the learner; by default it is cut to where it differs from the other.
    """

    reference: Callable[..., Any]
    cases: Sequence[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]]
    known_mistakes: Mapping[str, Callable[..., Any] | tuple[Callable[..., Any], ...]]
    run: Callable[..., Any] | None = None
    read: Callable[[Judge, Any], Any] | None = None
    look: Callable[..., Any] | None = None
    draw: Callable[[random.Random], tuple[Any, ...]] | None = None
    alike: Callable[[Any, Any], bool] = near
    otherwise: str | Callable[..., str] = "wrong-value"
    situation: Callable[..., str] | None = None
    shown: Callable[[Any], str] | None = None

    def __call__(self, answer: Callable[..., Any], judge: Judge) -> None:
        """Refuse an answer whose values are not the reference's."""
        read = self.read or (Judge.number if self.run is self.look is None else None)
        refuse = partial(read, judge) if read else None
        right = self.values(self.reference)
        got: list[Any] = []
        wrong = False
        for case, expected in zip(self.all_cases(), right, strict=True):
            try:
                got.append(self._value(answer, case, refuse))
            except Exception as error:
                if not wrong:
                    error.case = ((_("Case"), self._describe(self.all_cases()[len(got)])),)
                    raise
                # After the first wrong value it is one more wrong value, and no reason to stop.
                got.append(_Failed())
            wrong = wrong or not agree(self.alike, got[-1], expected)
        if not wrong:
            return
        cases = self.all_cases()

        def say(at: int) -> tuple[str, str]:
            write = self.shown or _short
            seen, expected = write(got[at]), write(right[at])
            if seen == expected or (self.shown is None and max(len(seen), len(expected)) > 60):
                seen, expected = diff_texts(got[at], right[at], self.alike)
            return _("{seen} for {describe}").format(seen=seen, describe=self._describe(cases[at])), expected

        def simple(at: int) -> tuple[bool, int, int]:
            drawn = self.draw is not None and at >= len(cases) - DRAWN
            return isinstance(got[at], _Failed), len(self._describe(cases[at])) if drawn else 0, at

        def otherwise(at: int) -> str:
            if not callable(self.otherwise):
                return self.otherwise
            return self.otherwise(got[at], right[at], *cases[at])

        judge.closest(
            got,
            right,
            {
                diagnosis: [self.values(one, safe=True) for one in as_tuple(mistake)]
                for diagnosis, mistake in self.known_mistakes.items()
            },
            alike=self.alike,
            otherwise=otherwise,
            say=say,
            simple=simple,
        )

    def all_cases(self) -> Sequence[tuple[Any, ...]]:
        """Return the cases, those drawn at the end."""
        cases = list(self.cases() if callable(self.cases) else self.cases)
        if self.draw:
            source = random.Random(self.reference.__name__)
            cases += [self.draw(source) for _ in range(DRAWN)]
        return cases

    def values(self, function: Callable[..., Any], safe: bool = False) -> list[Any]:
        """Return what a function gives for each case; an error stands in its place where ``safe``."""
        call = partial(_outcome, self._value) if safe else self._value
        return [call(function, case) for case in self.all_cases()]

    def _value(self, function: Callable[..., Any], case: Sequence[Any], read: Any = None) -> Any:
        got = self.run(function, *case) if self.run else function(*case)
        got = read(got) if read else got
        return self.look(got, *case) if self.look else got

    def _describe(self, case: tuple[Any, ...]) -> str:
        return (self.situation or self._arguments)(*case)

    def _arguments(self, *case: Any) -> str:
        names = inspect.signature(self.reference).parameters
        return ", ".join(f"{name}={_short(value)}" for name, value in zip(names, case, strict=True))


def as_tuple(mistake: Any) -> tuple[Callable[..., Any], ...]:
    """Return a known mistake, or several, as a tuple."""
    return mistake if isinstance(mistake, tuple) else (mistake,)


class _Failed:
    """Stands for the result of a call that raised, or whose value was refused: like no other."""


def _outcome(value: Callable[..., Any], function: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    try:
        return value(function, case)
    except Exception:  # noqa: BLE001  (whatever it was, there is no result)
        return _Failed()


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else brief(value, 120)
