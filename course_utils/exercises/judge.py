"""What a check says of an answer."""

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
"""Diagnoses that any exercise can give."""


class Todo:
    """What an unsolved stub returns."""

    def __repr__(self) -> str:
        return "todo()"


_TODO = Todo()


def todo() -> Any:
    """Stand for an answer that is not written yet: replace the call with your own code."""
    return _TODO


class NotTried(Exception):
    """The answer is still the stub."""


class NotYet(Exception):
    """The answer is not right; carries the diagnosis."""

    def __init__(self, diagnosis: str, seen: str, expected: str) -> None:
        super().__init__(diagnosis)
        self.diagnosis, self.seen, self.expected = diagnosis, seen, expected


class Raised(Exception):
    """The learner's code failed; carries what it raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class Judge:
    """What a check says of an answer. Its methods return only where the answer passes."""

    def no(self, diagnosis: str = "wrong-value", *, seen: object = None, expected: object = None) -> NoReturn:
        """Refuse the answer.

        Parameters
        ----------
        diagnosis
            The id of one of the exercise's diagnoses, or of a common one. Without it the learner reads only
            what was seen and what was expected.
        seen, expected
            What the answer did and what was asked for: two texts, or two values, which are cut to where
            they differ.
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
        """Refuse the answer unless what was seen is what was expected.

        Parameters
        ----------
        what
            What the two values are, in a few words for the learner: ``"launches in a step"``.
        seen, expected
            The two values. They are cut to where they differ.
        diagnosis
            The id of a diagnosis; else the learner reads only the two values.
        alike
            Whether two values count as equal.
        """
        if not agree(alike, seen, expected):
            shown, wanted = diff_texts(seen, expected, alike)
            self.no(diagnosis, seen=f"{what}: {shown}", expected=f"{what}: {wanted}")

    @contextmanager
    def own_generator(self) -> Iterator[None]:
        """Refuse as ``"global-generator"`` a block that draws from a global generator, or seeds one."""
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
        """Return ``got`` where it is of the type asked for, which is called ``name`` to the learner."""
        if got is None:
            self.no("returned-nothing", seen="None", expected=name)
        if not isinstance(got, kinds) or (isinstance(got, bool) and kinds is not bool):
            self.no("wrong-type", seen=f"{brief(got)} ({type(got).__name__})", expected=name)
        return got

    def listed(self, got: object, name: str) -> Any:
        """Return ``got`` where it is a list or tuple, or as a list an array of at most 10,000 numbers."""
        if is_array(got) and got.shape and math.prod(got.shape) <= 10_000:
            got = got.tolist()
        return self.is_a(got, (list, tuple), name)

    def number(self, got: object) -> float:
        """Return ``got`` as a finite float where it is a number, NumPy's too, or a tensor holding one."""
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
        """Refuse results that are not right, with the diagnosis of the known mistake that they agree with.

        They must agree on every case on which the known mistake is wrong: two cases at least, and the first
        wrong case of the answer or half of them. Of several, the one that explains most cases is taken.

        Parameters
        ----------
        got, right
            What the answer and the reference gave, a value for each case.
        known_mistakes
            For each diagnosis, what wrong functions gave, a value for each case; the first has that fault
            alone.
        alike
            Whether two values count as equal; ``same`` by default.
        otherwise
            The diagnosis of results that agree with no known mistake, or a function that returns it for the
            number of the case shown.
        say
            What is shown of a case, by its number: seen, expected. Else its values, cut to where they differ.
        simple
            Sort key: the smallest failing case is shown. By default the first.
        """
        alike = alike or same
        failing = [at for at, r in enumerate(right) if not agree(alike, got[at], r)]
        if not failing:
            return
        best, explained, typical = "", [], []
        for diagnosis, variants in known_mistakes.items():
            first: list[int] = []  # the cases on which the first variant is wrong
            for values in variants:
                wrong = [at for at, r in enumerate(right) if not agree(alike, values[at], r)]
                first = first or wrong
                follows = all(agree(alike, got[at], values[at]) for at in wrong)
                relevant = failing[0] in wrong or len(wrong) >= len(failing) / 2
                if follows and relevant and len(wrong) > max(1, len(explained)):
                    best, explained = diagnosis, wrong
                    typical = [at for at in wrong if at in first]
        candidates = [at for at in typical or explained if at in failing] or failing
        at = min(candidates, key=simple or (lambda at: at))
        if not best and all(rounded(got[k], right[k]) for k in failing):
            best = "rounded"
        best = best or (otherwise(at) if callable(otherwise) else otherwise)
        seen, expected = say(at) if say else diff_texts(got[at], right[at], alike)
        self.no(best, seen=seen, expected=expected)
