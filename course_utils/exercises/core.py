"""The checker: runs a learner's answer safely, judges what it does, and says so kindly.

An answer has one of four outcomes: *not tried* (the stub is still there), *raised* (the learner's
code failed, with its line), *not yet* (what was seen, what was expected, and which misunderstanding
that suggests) and *right* (and why it matters). Whatever the answer does, the notebook goes on.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import html
import inspect
import io
import math
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from .. import progress
from ..host import in_notebook
from ..show import Bundle, show
from . import guard
from .guard import torch_state
from .guard.restore import random_states

Outcome = Literal["not_tried", "raised", "not_yet", "right"]

RESULT_MIME = "application/vnd.gpu-course.result+json"
"""The key under which a shown result also carries its outcome, for the tests and for tools."""

LEVELS = {1: "●○○", 2: "●●○", 3: "●●●"}
"""How an exercise's difficulty is shown."""

HEADLINES: Mapping[Outcome, str] = {
    "not_tried": "Not tried yet",
    "raised": "Your code stopped with an error",
    "not_yet": "Not yet",
    "right": "Right",
}

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


class _NotTried(Exception):
    """The answer is still the stub."""


class _NotYet(Exception):
    """The answer is not right; carries the diagnosis."""

    def __init__(self, diagnosis: str, seen: str, expected: str) -> None:
        super().__init__(diagnosis)
        self.diagnosis, self.seen, self.expected = diagnosis, seen, expected


class _Raised(Exception):
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
        raise _NotYet(diagnosis, brief(seen), brief(expected))

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


@dataclass(frozen=True)
class Result:
    """What a check found: the outcome, and what to show for it."""

    exercise: str
    outcome: Outcome
    diagnosis: str = ""
    text: str = ""
    details: tuple[tuple[str, str], ...] = ()
    printed: str = ""
    aside: str = ""

    def bundle(self) -> Bundle:
        """Return the result in its forms: text, HTML and data."""
        headline = f"{HEADLINES[self.outcome]} · {self.exercise}"
        details = [*self.details, *([("Your code printed", self.printed)] if self.printed else [])]
        lines = [headline, *([self.text] if self.text else [])]
        lines += [f"{name}: {value}" for name, value in details]
        lines += [self.aside] if self.aside else []
        colour = _COLOURS[self.outcome]
        body = "".join(
            f'<div style="margin-top:.3em"><span style="opacity:.75">{html.escape(name)}</span>'
            f'<pre style="margin:.1em 0 0 1em;white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere">{html.escape(value)}</pre></div>'
            for name, value in details
        )
        if self.aside:
            body += f'<div style="margin-top:.3em;opacity:.75">{_inline(self.aside)}</div>'
        return Bundle(
            text="\n".join(lines),
            html=f'<div style="border-left:4px solid {colour};padding:.4em .9em;margin:.3em 0">'
            f'<b style="color:{colour}">{HEADLINES[self.outcome]}</b>'
            f"<div>{_inline(self.text)}</div>{body}</div>",
            extra={
                RESULT_MIME: {
                    "exercise": self.exercise,
                    "outcome": self.outcome,
                    "diagnosis": self.diagnosis,
                }
            },
        )


_COLOURS = {"not_tried": "#888888", "raised": "#c0392b", "not_yet": "#c77700", "right": "#2a9d5c"}


@dataclass
class Exercise:
    """One exercise: its texts, its reference solution, and a check of behaviour.

    Parameters
    ----------
    id
        Lesson and name, such as ``"01.speedup"``; the name is the stub's and the reference's.
    title, task
        What the learner reads; ``task`` is Markdown.
    level
        Difficulty, 1 to 3.
    minutes
        How long it should take.
    hints
        Two or three, from a nudge to nearly the answer. Markdown.
    reference
        The solution: a function with the stub's name and arguments. For an exercise that asks for
        a value, a function without arguments that ends in ``return VALUE``.
    check
        Called as ``check(answer, judge)``. It looks at what the answer does and calls ``judge.no``
        at the first thing that is wrong; it returns where the answer is right.
    why
        Why the right answer matters: shown with *right*.
    diagnoses
        For each id that the check may give, what the learner is told.
    wrong
        Known wrong answers: for each diagnosis id, one answer that must receive it.
    limit
        How long a check may take, in seconds.
    may_change
        Whether the answer is meant to change what it is given.
    """

    id: str
    title: str
    task: str
    level: int
    minutes: int
    hints: tuple[str, ...]
    reference: Callable[..., Any]
    check_answer: Callable[[Any, Judge], None]
    why: str
    diagnoses: Mapping[str, str]
    wrong: Mapping[str, Any]
    limit: float = 10.0
    may_change: bool = False
    _hints_given: int = field(default=0, repr=False)
    _hints_told: bool = field(default=False, repr=False)

    @property
    def slug(self) -> str:
        """The name without the lesson: ``"speedup"``."""
        return self.id.split(".", 1)[1]

    @property
    def wants_value(self) -> bool:
        """Whether the answer is a value and not a function."""
        return not inspect.signature(self.reference).parameters

    def check(self, answer: Any) -> None:
        """Judge an answer, show what was found, and note it in the local progress file.

        The first time that it is *not yet*, the hints are mentioned.
        """
        result = self.result(answer)
        if result.outcome == "not_yet" and not self._hints_told:
            result = dataclasses.replace(result, aside=f"Stuck? `ex.{self.slug}.hint()` helps.")
            self._hints_told = True
        if result.outcome != "not_tried":
            progress.note(self.id, result.outcome, result.diagnosis)
        show(result.bundle())

    def result(self, answer: Any) -> Result:
        """Judge an answer without showing or noting anything.

        Parameters
        ----------
        answer
            The learner's function, or value.
        """
        output = _Output()
        with redirect_stdout(output), redirect_stderr(output):
            result = self._found(answer)
        printed = output.text() if result.outcome != "not_tried" else ""
        return dataclasses.replace(result, printed=printed)

    def or_reference(self, answer: Any) -> Any:
        """Return the answer where it is right, else the reference: later cells go on with either."""
        return answer if self.result(answer).outcome == "right" else self.reference

    def hint(self) -> None:
        """Show the next hint, from a nudge to nearly the answer."""
        if self._hints_given >= len(self.hints):
            self._hints_given = 0
            self._say(f"That was the last hint. `ex.{self.slug}.solution()` shows the answer.")
            return
        self._hints_given += 1
        self._say(
            f"**Hint {self._hints_given} of {len(self.hints)}.** {self.hints[self._hints_given - 1]}"
        )

    def solution(self) -> None:
        """Show the reference solution: the code that the course's tests run."""
        source = _as_value(self.source) if self.wants_value else self.source
        self._say(f"```python\n{source}```\n\n{self.why}")

    @property
    def source(self) -> str:
        """The reference's source code."""
        return textwrap.dedent(inspect.getsource(self.reference))

    def _say(self, markdown: str) -> None:
        if in_notebook():
            from IPython.display import Markdown, display

            display(Markdown(markdown))
        else:
            print(markdown)

    def _found(self, answer: Any) -> Result:
        problems: list[BaseException] = []
        shown: list[Result] = []

        def judge() -> None:
            try:
                self._judge(answer)
            except BaseException as error:  # noqa: BLE001  (SystemExit and the rest are outcomes too)
                problems.append(error)

        def explain() -> None:
            shown.append(self._explain(problems.pop()))

        ended = guard.run(judge, self.limit, answer, self)
        if not ended or isinstance(next(iter(problems), None), guard.Stop):
            seen = (("Seen", f"more than {self.limit:g} s"),)
            return Result(self.id, "not_yet", "too-slow", COMMON["too-slow"], seen)
        if not problems:
            return Result(self.id, "right", text=self.why)
        if isinstance(problems[0], (_NotTried, _NotYet)):
            return self._explain(problems[0])
        with suppress(Exception):  # what an error says of itself is the learner's code too
            guard.run(explain, 1.0, None, self)
        return shown[0] if shown else Result(self.id, "raised", "error", _NO_WORDS)

    def _judge(self, answer: Any) -> None:
        if isinstance(answer, Todo):
            raise _NotTried
        judge = Judge()
        if self.wants_value:
            if answer is None:
                judge.no("no-value", seen="None", expected="a value")
            if callable(answer):
                judge.no("not-a-value", seen="a function", expected="a value")
            self.check_answer(answer, judge)
            return
        if not callable(answer):
            judge.no("not-a-function", seen=answer, expected=f"the function {self.slug}")
        if not _same_arguments(answer, self.reference):
            judge.no(
                "wrong-arguments",
                seen=f"{self.slug}{_signature(answer)}",
                expected=f"{self.slug}{_signature(self.reference)}",
            )
        self.check_answer(_guarded(answer, judge, self.may_change), judge)

    def _explain(self, problem: BaseException) -> Result:
        if isinstance(problem, _NotTried):
            return Result(
                self.id,
                "not_tried",
                text=f"Replace `todo()` with your answer and run the cell again. Stuck? "
                f"`ex.{self.slug}.hint()` gives a nudge.",
            )
        if isinstance(problem, _NotYet):
            text = self.diagnoses.get(problem.diagnosis) or COMMON[problem.diagnosis]
            pairs = (("Seen", problem.seen), ("Expected", problem.expected))
            details = tuple((name, value) for name, value in pairs if value)
            return Result(self.id, "not_yet", problem.diagnosis, text, details)
        error = problem.error if isinstance(problem, _Raised) else problem
        no_room = isinstance(error, MemoryError) or "can't allocate memory" in brief(error)
        return Result(
            self.id,
            "raised",
            brief(type(error).__name__),
            _NO_ROOM if no_room else "The check called your code, and this came out:",
            _where(error, in_answer=isinstance(problem, _Raised)),
        )


_NO_WORDS = (
    "The check called your code, and an error came out that cannot be shown: it fails itself."
)
_NO_ROOM = "The check called your code, and it asked for more memory than a check may take:"


def _as_value(source: str) -> str:
    """Turn a function without arguments that ends in ``return VALUE`` into ``answer = VALUE``."""
    lines = source.splitlines()
    body = ast.parse(source).body[0].body
    last = body[-1].lineno - 1
    lines[last] = lines[last].replace("return", "answer =", 1)
    return textwrap.dedent("\n".join(lines[body[0].lineno - 1 :])) + "\n"


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


def _guarded(answer: Callable[..., Any], judge: Judge, may_change: bool) -> Callable[..., Any]:
    """Wrap the learner's function: tell its errors from the check's, see stubs and changed inputs."""

    @functools.wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        before = (
            [] if may_change else [(value, _snapshot(value)) for value in given if _plain(value)]
        )
        modes = torch_state.modes()
        try:
            got = answer(*args, **kwargs)
        except guard.Stop:
            raise
        except BaseException as error:  # noqa: BLE001  (whatever it was, it is the learner's)
            raise _Raised(error) from None
        finally:
            torch_state.take_off_modes(modes)
        if isinstance(got, Todo):
            raise _NotTried
        for value, old in before:
            if not same(value, old):
                judge.no("changed-input", seen=value, expected=old)
        return got

    return call


def _plain(value: object) -> bool:
    """Whether a value is data that can be compared before and after a call."""
    if isinstance(value, (list, tuple)):
        return all(_plain(item) for item in value)
    if isinstance(value, Mapping):
        return all(_plain(item) for item in value.values())
    is_array = hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "tolist")
    return is_array or isinstance(value, (int, float, str, bytes, bool, type(None)))


def _snapshot(value: Any) -> Any:
    """A copy that shares nothing with the value; a tensor's copy is outside the autograd graph."""
    if isinstance(value, (list, tuple)):
        items = [_snapshot(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        return {key: _snapshot(item) for key, item in value.items()}
    if hasattr(value, "detach"):
        return value.detach().clone()
    return copy.deepcopy(value)


def _same_arguments(answer: Callable[..., Any], reference: Callable[..., Any]) -> bool:
    try:
        inspect.signature(answer).bind(*inspect.signature(reference).parameters)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature: let the check call it
        return True
    return True


def _signature(function: Callable[..., Any]) -> str:
    try:
        parameters = inspect.signature(function).parameters.values()
        return f"({', '.join(p.name for p in parameters)})"
    except (TypeError, ValueError):
        return "(…)"


def _where(error: BaseException, in_answer: bool) -> tuple[tuple[str, str], ...]:
    """The learner's line that failed, and what it raised."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "course_utils" not in frame.filename or "lesson" in frame.filename
    ]
    own = [
        frame for frame in frames if "ipykernel" in frame.filename or "ipython" in frame.filename
    ]
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    details = []
    if in_answer and (frame := (own or frames or [None])[-1 if own else 0]):
        details.append((f"Line {frame.lineno}, in {frame.name}", frame.line or ""))
    return (*details, ("Error", brief(message, 600)))


class _Output(io.StringIO):
    """Keeps what an answer prints, up to a limit, so that an endless loop cannot fill the memory."""

    most = 20_000

    def write(self, text: str) -> int:
        """Keep the text while there is room."""
        if self.tell() < self.most:
            super().write(text[: self.most - self.tell()])
        return len(text)

    def text(self) -> str:
        """The printed text, abbreviated for showing."""
        return brief(io.StringIO.getvalue(self).strip(), 1000)

    def close(self) -> None:
        """Stay open: the answer may close what it prints to, the check goes on."""


def _inline(text: str) -> str:
    """Escape a text and turn its `code` and **bold** into HTML."""
    parts = html.escape(text).split("`")
    coded = "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
    bold = coded.split("**")
    return "".join(f"<b>{part}</b>" if i % 2 else part for i, part in enumerate(bold))
