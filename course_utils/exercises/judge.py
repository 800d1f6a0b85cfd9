"""What a check says of an answer, and how values are compared and shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from .guard.restore import random_states

COMMON = {
    "not-a-function": "Hand over the function itself, without calling it: put its name, and no "
    "parentheses after it, into check(...).",
    "not-a-value": "Hand over a value here, not a function.",
    "no-value": "The answer is None. Put the value that the task asks for in its place.",
    "wrong-arguments": "Keep the arguments of the stub: the check calls your function with them.",
    "returned-nothing": "Your function gave None back. A function without the word return does that, and so does one that "
    "reaches its end without meeting it.",
    "wrong-type": "The answer is of another type than the task asks for.",
    "wrong-value": "The result differs from the expected one.",
    "changed-input": "Your function changed what it was given. Work on a copy, or make a new object, "
    "so that the caller's data stays as it was.",
    "too-slow": "The check stopped your code, because it took too long. Is there a loop that never "
    "ends, or that does far more than the task asks?",
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

    def no(self, diagnosis: str, *, seen: object = None, expected: object = None) -> NoReturn:
        """Refuse the answer.

        Parameters
        ----------
        diagnosis
            The id of one of the exercise's diagnoses, or of a common one.
        seen, expected
            What the answer did and what was asked for: text, or a value, which is abbreviated.
        """
        raise NotYet(diagnosis, brief(seen), brief(expected))

    @contextmanager
    def own_generator(self) -> Iterator[None]:
        """Refuse as ``"global-generator"`` a block that draws from a global generator, or seeds one."""
        before = random_states()
        yield
        for library, state in random_states().items():
            if not same(before[library], state):
                self.no(
                    "global-generator",
                    seen=f"{library}'s global generator moved on, or was seeded",
                    expected="a generator of the function's own",
                )

    def is_a(self, got: object, kinds: type | tuple[type, ...], name: str) -> Any:
        """Return ``got`` where it is of the type asked for, which is called ``name`` to the learner."""
        if got is None:
            self.no("returned-nothing", seen="None", expected=name)
        if not isinstance(got, kinds) or (isinstance(got, bool) and kinds is not bool):
            self.no("wrong-type", seen=f"{brief(got)}, a {type(got).__name__}", expected=name)
        return got

    def number(self, got: object) -> float:
        """Return ``got`` as a finite float where it is a number or a tensor holding one."""
        if hasattr(got, "numel") and got.numel() == 1:
            got = got.item()
        number = float(self.is_a(got, (int, float), "a number"))
        if not math.isfinite(number):
            self.no("wrong-value", seen=number, expected="a finite number")
        return number

    def close(
        self, got: object, expected: float, diagnosis: str = "wrong-value", rel: float = 1e-6
    ) -> float:
        """Return ``got`` as a float where it is within ``rel`` of ``expected``."""
        number = self.number(got)
        if not math.isclose(number, expected, rel_tol=rel, abs_tol=1e-12):
            self.no(diagnosis, seen=number, expected=expected)
        return number

    def closest(
        self,
        got: Sequence[Any],
        right: Sequence[Any],
        twins: Mapping[str, Sequence[Sequence[Any]]],
        *,
        alike: Callable[[Any, Any], bool] | None = None,
        otherwise: str = "wrong-value",
        seen: object = None,
        expected: object = None,
    ) -> None:
        """Refuse results that are not right, with the diagnosis of the wrong twin that they follow.

        An answer follows a twin where it is like it on every case on which the twin is wrong. Of several,
        the one that explains the most cases is taken, and the first of these.

        Parameters
        ----------
        got, right
            What the answer and the reference gave, a value for each case.
        twins
            For each diagnosis, what one or more wrong functions gave, a value for each case.
        alike
            Whether two values count as equal; ``same`` unless told.
        otherwise
            The diagnosis of results that follow no twin.
        seen, expected
            What the learner is shown of the first case that is wrong; its two values unless told.
        """
        alike = alike or same
        off = [
            at for at, (g, r) in enumerate(zip(got, right, strict=True)) if not _like(alike, g, r)
        ]
        if not off:
            return
        best, most = otherwise, 0
        for diagnosis, several in twins.items():
            for twin in several:
                wrong = [at for at, r in enumerate(right) if not _like(alike, twin[at], r)]
                follows = all(_like(alike, got[at], twin[at]) for at in wrong)
                if follows and off[0] in wrong and len(wrong) > most:
                    best, most = diagnosis, len(wrong)
        self.no(
            best,
            seen=got[off[0]] if seen is None else seen,
            expected=right[off[0]] if expected is None else expected,
        )


def _like(alike: Callable[[Any, Any], bool], a: Any, b: Any) -> bool:
    try:
        return bool(alike(a, b))
    except Exception:  # noqa: BLE001  (values of other kinds are not alike)
        return False


def brief(value: object, most: int = 300) -> str:
    """Write a value in at most ``most`` characters; a text stays as it is, None gives nothing."""
    if value is None:
        return ""
    try:
        text = str.__str__(value if isinstance(value, str) else repr(value))
    except Exception as error:  # noqa: BLE001  (a learner's own __repr__ can do anything)
        text = f"<a {type(value).__name__} whose repr fails: {type(error).__name__}>"
    return text if len(text) <= most else text[: most - 1] + "…"


def same(a: object, b: object) -> bool:
    """Return whether two values are equal: tensors and arrays element by element, nested too."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):  # a state_dict and a dict may be equal
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if hasattr(a, "shape") and hasattr(a, "dtype"):
        alike = all(
            getattr(a, name, None) == getattr(b, name, None)
            for name in ("shape", "dtype", "device")
        )
        return alike and bool((a == b).all())
    return bool(a == b)
