"""A reusable check: compare an answer's results with the reference's over cases, and recognise mistakes."""

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
"""How many random cases a check with `draw` adds."""


near = nearly(1e-6, 1e-9)
"""``near(a, b)``: whether two values are equal up to floating-point rounding."""


@dataclass(frozen=True)
class ComparesToReference:
    """A check: for every case, an answer must return what the reference returns.

    Parameters
    ----------
    reference
        The right function.
    cases
        A tuple of arguments for each case; or a function that returns them, if a call may modify them.
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
        """Check an answer: refuse it by ``judge`` if its results differ from the reference's, else return."""
        read = self.read or (Judge.number if self.run is self.look is None else None)
        read_or_refuse = partial(read, judge) if read else None
        right = self.values(self.reference)
        got: list[Any] = []
        wrong = False
        for case, expected in zip(self.all_cases(), right, strict=True):
            try:
                got.append(self._value(answer, case, read_or_refuse))
            except Exception as error:
                if not wrong:
                    error.case = ((_("Case"), self._describe(self.all_cases()[len(got)])),)
                    raise
                # After a first wrong result, an error is one more wrong result, and does not end the check.
                got.append(_NoResult())
            wrong = wrong or not agree(self.alike, got[-1], expected)
        if not wrong:
            return
        cases = self.all_cases()

        def say(index: int) -> tuple[str, str]:
            """Return the texts (seen, expected) for a case."""
            write = self.shown or _brief_value
            seen, expected = write(got[index]), write(right[index])
            if seen == expected or (self.shown is None and max(len(seen), len(expected)) > 60):
                seen, expected = diff_texts(got[index], right[index], self.alike)
            return _("{seen} for {describe}").format(
                seen=seen, describe=self._describe(cases[index])
            ), expected

        def sort_key(index: int) -> tuple[bool, int, int]:
            """Prefer cases with a result, then given cases and short random ones, then the first."""
            drawn = self.draw is not None and index >= len(cases) - DRAWN
            return isinstance(got[index], _NoResult), len(self._describe(cases[index])) if drawn else 0, index

        def otherwise(index: int) -> str:
            """Return the diagnosis for a case if no known mistake agrees."""
            if not callable(self.otherwise):
                return self.otherwise
            return self.otherwise(got[index], right[index], *cases[index])

        judge.closest(
            got,
            right,
            {
                diagnosis: [self.values(variant, safe=True) for variant in as_tuple(mistake)]
                for diagnosis, mistake in self.known_mistakes.items()
            },
            alike=self.alike,
            otherwise=otherwise,
            say=say,
            simple=sort_key,
        )

    def all_cases(self) -> Sequence[tuple[Any, ...]]:
        """Return a new list of the cases, followed by the random ones, which are the same at each call."""
        cases = list(self.cases() if callable(self.cases) else self.cases)
        if self.draw:
            rng = random.Random(self.reference.__name__)
            cases += [self.draw(rng) for _ in range(DRAWN)]
        return cases

    def values(self, function: Callable[..., Any], safe: bool = False) -> list[Any]:
        """Return a function's result for each case; with ``safe``, a `_NoResult` where it raises."""
        call = partial(_result_or_failure, self._value) if safe else self._value
        return [call(function, case) for case in self.all_cases()]

    def _value(self, function: Callable[..., Any], case: Sequence[Any], read: Any = None) -> Any:
        """Return what is compared for a case: the function's result, after `run`, ``read`` and `look`."""
        got = self.run(function, *case) if self.run else function(*case)
        got = read(got) if read else got
        return self.look(got, *case) if self.look else got

    def _describe(self, case: tuple[Any, ...]) -> str:
        """Return the text of a case for the learner."""
        return (self.situation or self._arguments)(*case)

    def _arguments(self, *case: Any) -> str:
        """Return a case's arguments as text: ``"batch=32, steps=4"``."""
        names = inspect.signature(self.reference).parameters
        return ", ".join(f"{name}={_brief_value(value)}" for name, value in zip(names, case, strict=True))


def as_tuple(mistake: Any) -> tuple[Callable[..., Any], ...]:
    """Return one wrong function, or a tuple of them, as a tuple."""
    return mistake if isinstance(mistake, tuple) else (mistake,)


class _NoResult:
    """Placeholder for the result of a call that raised, or was refused; equal to no result."""


def _result_or_failure(value: Callable[..., Any], function: Callable[..., Any], case: tuple[Any, ...]) -> Any:
    """Return ``value(function, case)``, or a `_NoResult` if it raises."""
    try:
        return value(function, case)
    except Exception:  # noqa: BLE001  (whatever it was, there is no result)
        return _NoResult()


def _brief_value(value: Any) -> str:
    """Return a value's text in at most 120 characters; floats in six digits."""
    return f"{value:g}" if isinstance(value, float) else brief(value, 120)
