"""How a check refuses an answer: the `Judge`, its exceptions, and the common diagnoses."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
from typing import Any, NoReturn

from course_language import _

from .guard import random_states
from .values import agree, brief, diff_texts, is_array, rounded, same

COMMON = {
    "not-a-function": _(
        "Hand over the function itself, without calling it: put its name, and no "
        "parentheses after it, into check(...)."
    ),
    "not-a-value": _("Hand over a value here, not a function."),
    "no-value": _("The answer is None. Put the value that the task asks for in its place."),
    "wrong-arguments": _("Keep the arguments of the stub: the check calls your function with them."),
    "returned-nothing": _(
        "Your function gave None back. A function that reaches its end without meeting a return does that."
    ),
    "wrong-type": _("The answer is of another type than the task asks for."),
    "wrong-value": _("This isn't what the task asks for yet. Compare what was seen with what was expected."),
    "rounded": _("What came back is rounded. Give all its digits."),
    "changed-input": _(
        "Your function changed what it was given. Work on a copy, so that the caller's data stays as it was."
    ),
    "too-slow": _("The check stopped your code, because it took too long. Does each of its loops end?"),
}
"""Diagnoses that every exercise has: id to the text for the learner."""


class Todo:
    """The type of what ``todo()`` returns."""

    def __repr__(self) -> str:
        return "todo()"


_TODO = Todo()


def todo() -> Any:
    """Placeholder for an answer that is not written yet: replace the call with your own code."""
    return _TODO


class NotTried(Exception):
    """Raised by a check if the answer is still the stub."""


class NotYet(Exception):
    """Raised by `Judge` if the answer is not right, with the diagnosis and the texts of the two values."""

    def __init__(self, diagnosis: str, seen: str, expected: str) -> None:
        super().__init__(diagnosis)
        self.diagnosis, self.seen, self.expected = diagnosis, seen, expected


class Raised(Exception):
    """Raised by a check if the learner's code raised ``error``, to tell it from an error of the check."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Judge:
    """The assertions of checks: each method returns if the answer passes, else raises `NotYet`."""

    def no(self, diagnosis: str = "wrong-value", *, seen: object = None, expected: object = None) -> NoReturn:
        """Refuse the answer: raise `NotYet`.

        Parameters
        ----------
        diagnosis
            The id of one of the exercise's diagnoses, or of a common one. Without it the learner reads only
            what was seen and what was expected.
        seen, expected
            What the answer gave and what was expected: two texts, or two values, of which only the first
            difference is shown (`diff_texts`).
        """
        texts = zip((seen, expected), diff_texts(seen, expected), strict=True)
        raise NotYet(diagnosis, *("" if value is None else text for value, text in texts))

    def expect(
        self,
        what: str,
        seen: object,
        expected: object,
        diagnosis: str = "wrong-value",
        alike: Callable[[Any, Any], bool] = same,
    ) -> None:
        """Refuse the answer unless two values are equal.

        Parameters
        ----------
        what
            What the two values are, in a few words for the learner: ``"launches in a step"``.
        seen, expected
            The two values; if they differ, their first difference is shown.
        diagnosis
            The id of a diagnosis; by default the learner reads only the two values.
        alike
            ``alike(seen, expected)``: whether the two values count as equal.
        """
        if not agree(alike, seen, expected):
            shown, wanted = diff_texts(seen, expected, alike)
            self.no(diagnosis, seen=f"{what}: {shown}", expected=f"{what}: {wanted}")

    @contextmanager
    def own_generator(self) -> Iterator[None]:
        """Context manager: refuse as ``"global-generator"`` an answer that uses or seeds a global RNG."""
        before = random_states()
        yield
        for library, state in random_states().items():
            if not same(before[library], state):
                self.no(
                    "global-generator",
                    seen=_("{library}'s global generator moved on, or was seeded").format(library=library),
                    expected=_("a generator of the function's own"),
                )

    def is_a(self, got: object, kinds: type | tuple[type, ...], name: str) -> Any:
        """Return ``got`` if it is an instance of ``kinds``, else refuse it; the learner reads ``name``."""
        if got is None:
            self.no("returned-nothing", seen="None", expected=name)
        if not isinstance(got, kinds) or (isinstance(got, bool) and kinds is not bool):
            self.no("wrong-type", seen=f"{brief(got)} ({type(got).__name__})", expected=name)
        return got

    def listed(self, got: object, name: str) -> Any:
        """Return ``got`` if it is a list or tuple, or an array's ``tolist()``; else refuse it."""
        if is_array(got) and got.shape and math.prod(got.shape) <= 10_000:
            got = got.tolist()
        return self.is_a(got, (list, tuple), name)

    def number(self, got: object) -> float:
        """Return ``got``, a number or an array of one element, as a finite float; else refuse it."""
        if is_array(got) and math.prod(got.shape) == 1:
            got = got.item()
        number = float(self.is_a(got, Real, _("a number")))
        if not math.isfinite(number):
            self.no("wrong-value", seen=number, expected=_("a finite number"))
        return number

    def closest(
        self,
        got: Sequence[Any],
        right: Sequence[Any],
        known_mistakes: Mapping[str, Sequence[Sequence[Any]]],
        *,
        alike: Callable[[Any, Any], bool] | None = None,
        otherwise: str | Callable[[int], str] = "wrong-value",
        say: Callable[[int], tuple[str, str]] | None = None,
        simple: Callable[[int], Any] | None = None,
    ) -> None:
        """Refuse wrong results, with the diagnosis of the known mistake whose results they agree with.

        They must agree on every case on which the known mistake is wrong. These must be two cases at least,
        and include the answer's first wrong case, or be half as many as its wrong cases. Of several known
        mistakes, the one that is wrong on most cases is taken. Return if all results are right.

        Parameters
        ----------
        got, right
            What the answer and the reference gave, a value for each case.
        known_mistakes
            For each diagnosis, the results of one or more wrong functions, a value for each case; the first
            function has no other fault.
        alike
            Whether two values count as equal; ``same`` by default.
        otherwise
            The diagnosis of results that agree with no known mistake, or a function that returns it for the
            number of the case shown.
        say
            ``say(number)`` returns the texts (seen, expected) for the case shown; by default `diff_texts`.
        simple
            Sort key by case number: the smallest failing case is shown. By default the first.
        """
        alike = alike or same
        failing = [index for index, r in enumerate(right) if not agree(alike, got[index], r)]
        if not failing:
            return
        best, explained, typical = "", [], []
        for diagnosis, variants in known_mistakes.items():
            first: list[int] = []  # the cases on which the first variant is wrong
            for values in variants:
                wrong = [index for index, r in enumerate(right) if not agree(alike, values[index], r)]
                first = first or wrong
                follows = all(agree(alike, got[index], values[index]) for index in wrong)
                relevant = failing[0] in wrong or len(wrong) >= len(failing) / 2
                if follows and relevant and len(wrong) > max(1, len(explained)):
                    best, explained = diagnosis, wrong
                    typical = [index for index in wrong if index in first]
        candidates = [index for index in typical or explained if index in failing] or failing
        index = min(candidates, key=simple or (lambda index: index))
        if not best and all(rounded(got[k], right[k]) for k in failing):
            best = "rounded"
        best = best or (otherwise(index) if callable(otherwise) else otherwise)
        seen, expected = say(index) if say else diff_texts(got[index], right[index], alike)
        self.no(best, seen=seen, expected=expected)
