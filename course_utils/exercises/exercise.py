"""An exercise: its texts, its reference solution, and the check of a learner's answer.

An answer has one of four outcomes: *not tried* (the stub is still there), *raised* (the learner's
code failed, with its line), *not yet* (what was seen, what was expected, and which misunderstanding
that suggests) and *right* (and why it matters). Whatever the answer does, the notebook goes on.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import importlib
import inspect
import io
import sys
import textwrap
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from course_language import _

from .. import progress_file
from ..show import show
from ..this_machine import in_notebook
from . import guard
from .judge import COMMON, Judge, NotTried, NotYet, Raised, Todo, todo
from .result import Result
from .values import brief, is_array, same

TEXTS = ("title", "task", "hints", "why", "diagnoses")
"""The fields of an exercise that a learner reads: translated as it is made, so they need no mark."""

LEVELS = {1: "●○○", 2: "●●○", 3: "●●●"}  # how an exercise's difficulty is shown


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
    check_answer
        Called as ``check_answer(answer, judge)``. It looks at what the answer does and calls ``judge.no``
        at the first thing that is wrong; it returns where the answer is right.
    why
        Why the right answer matters: shown with *right*.
    diagnoses
        For each id that the check may give, what the learner is told.
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
    limit: float = 10.0
    may_change: bool = False
    _hints_given: int = field(default=0, repr=False)
    _hints_mentioned: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        self.title, self.task, self.why = _(self.title), _(self.task), _(self.why)
        self.hints = tuple(map(_, self.hints))
        self.diagnoses = {name: _(text) for name, text in self.diagnoses.items()}

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
        if result.outcome == "not_yet" and not self._hints_mentioned:
            result = dataclasses.replace(
                result, aside=_("Stuck? `ex.{slug}.hint()` helps.").format(slug=self.slug)
            )
            self._hints_mentioned = True
        if result.outcome != "not_tried":
            progress_file.note(self.id, result.outcome, result.diagnosis)
        show(result.bundle())

    def result(self, answer: Any) -> Result:
        """Judge an answer without showing or noting anything.

        Parameters
        ----------
        answer
            The learner's function, or value.
        """
        from simgpu import worker

        if _is_stub(answer):
            return self._not_tried()
        if worker.needed() and callable(answer):  # the simulated GPU is in another process
            with suppress(worker.WorkerError):
                result, error = worker.call(_check_in_worker, self.id, answer)
                if result.outcome == "raised":
                    sys.last_value = error
                return result
        output = _Output()
        with redirect_stdout(output), redirect_stderr(output):
            result = guard.run(lambda: self._run_check(answer), self.limit)
        result = result or self._not_yet("too-slow", seen=_("more than {limit:g} s").format(limit=self.limit))
        if result.outcome == "not_tried":
            return result
        return dataclasses.replace(result, printed=output.text())

    def or_reference(self, answer: Any) -> Any:
        """Return the answer where it is right, else the reference: later cells go on with either."""
        return answer if self.result(answer).outcome == "right" else self.reference

    def hint(self) -> None:
        """Show the next hint, from a nudge to nearly the answer; after the last one, that one again."""
        of = len(self.hints)
        all_given = self._hints_given == of
        self._hints_given = min(self._hints_given + 1, of)
        text = _("**Hint {hints_given} of {of}.** {hint}").format(
            hints_given=self._hints_given, of=of, hint=self.hints[self._hints_given - 1]
        )
        end = _("That was the last hint. `ex.{slug}.solution()` shows the answer.").format(slug=self.slug)
        self._say(f"{text}\n\n{end}" if all_given else text)

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

    def _run_check(self, answer: Any) -> Result:
        """Check an answer; return the result, whatever the answer or the check raises."""
        try:
            self._check(answer)
        except NotTried:
            return self._not_tried()
        except NotYet as refusal:
            return self._not_yet(refusal.diagnosis, refusal.seen, refusal.expected)
        except Raised as raised:
            return self._raised(raised.error, raised, in_answer=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (in the check: of what was returned)
            return self._raised(error, error, in_answer=False)
        return Result(self.id, "right", text=self.why)

    def _check(self, answer: Any) -> None:
        judge = Judge()
        if self.wants_value:
            if answer is None:
                judge.no("no-value", seen="None", expected=_("a value"))
            if callable(answer):
                judge.no("not-a-value", seen=_("a function"), expected=_("a value"))
            self.check_answer(answer, judge)
            return
        if not callable(answer):
            judge.no(
                "not-a-function",
                seen=answer,
                expected=_("the function {slug}").format(slug=self.slug),
            )
        if not _same_arguments(answer, self.reference):
            seen, expected = (f"{self.slug}{_signature(f)}" for f in (answer, self.reference))
            judge.no("wrong-arguments", seen=seen, expected=expected)
        self.check_answer(_guarded(answer, judge, self.may_change), judge)

    def _not_tried(self) -> Result:
        text = _(
            "`todo()` is still there. Write your answer in its place, or delete its line where the comment "
            "says so. Then run the cell again. Stuck? `ex.{slug}.hint()` gives a nudge."
        ).format(slug=self.slug)
        return Result(self.id, "not_tried", text=text)

    def _not_yet(self, diagnosis: str, seen: str, expected: str = "") -> Result:
        texts = {**COMMON, **self.diagnoses}
        # A check that several exercises share may name a fault that this one has no text for.
        diagnosis = diagnosis if diagnosis in texts else "wrong-value"
        pairs = ((_("Seen"), seen), (_("Expected"), expected))
        details = tuple((name, value) for name, value in pairs if value)
        return Result(self.id, "not_yet", diagnosis, texts[diagnosis], details)

    def _raised(self, error: BaseException, problem: BaseException, *, in_answer: bool) -> Result:
        text = _("The check called your code, and this came out:")
        if isinstance(error, MemoryError) or "can't allocate memory" in brief(error):
            text = _("The check called your code, and it asked for more memory than a check may take:")
        details = (*_where(error, in_answer), *getattr(problem, "case", ()))
        # For explain(). Without its traceback it keeps no frame alive.
        sys.last_value = BaseException.with_traceback(error, None)
        return Result(self.id, "raised", brief(type(error).__name__), text, details)


def _check_in_worker(ident: str, answer: Any) -> tuple[Result, Any]:
    exercise = getattr(importlib.import_module(__package__).lesson(ident[:2]), ident[3:])
    return exercise.result(answer), getattr(sys, "last_value", None)


def _is_stub(answer: Any) -> bool:
    """Whether an answer is ``todo()``, or a function in whose code a call of it is left."""
    code = getattr(answer, "__code__", None)
    return isinstance(answer, Todo) or (isinstance(code, CodeType) and _calls_todo(code))


def _calls_todo(code: CodeType) -> bool:
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return todo.__name__ in code.co_names or any(map(_calls_todo, inner))


def _as_value(source: str) -> str:
    """Turn a function without arguments that ends in ``return VALUE`` into ``answer = VALUE``."""
    before, _, value = source.partition(":\n")[2].rpartition("return ")
    return textwrap.dedent(before + "answer = " + value)


def _guarded(answer: Callable[..., Any], judge: Judge, may_change: bool) -> Callable[..., Any]:
    """Wrap the learner's function: tell its errors from the check's, see stubs and changed inputs."""

    @functools.wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        inputs = [] if may_change else filter(_is_data, [*args, *kwargs.values()])
        before = [(value, _snapshot(value)) for value in inputs]
        modes = guard.modes()
        try:
            got = answer(*args, **kwargs)
        except guard.Stop:
            raise
        except BaseException as error:  # noqa: BLE001  (whatever it was, it is the learner's)
            raise Raised(error) from None
        finally:
            guard.restore_modes(modes)
        if isinstance(got, Todo):
            raise NotTried
        for value, old in before:
            if not same(value, old):
                judge.no("changed-input", seen=value, expected=old)
        return got

    return call


def _is_data(value: object) -> bool:
    """Return whether a value can be compared before and after a call."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_data, value))
    if isinstance(value, Mapping):
        return all(map(_is_data, value.values()))
    return is_array(value) or isinstance(value, (int, float, str, bytes, type(None)))


def _snapshot(value: Any) -> Any:
    """Copy data so that it shares nothing with the value; a tensor's copy is outside the autograd graph."""
    if isinstance(value, (list, tuple)):
        items = map(_snapshot, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        return {key: _snapshot(item) for key, item in value.items()}
    return value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)


def _same_arguments(answer: Callable[..., Any], reference: Callable[..., Any]) -> bool:
    try:
        inspect.signature(answer).bind(*inspect.signature(reference).parameters)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature: let the check call it
        pass
    return True


def _signature(function: Callable[..., Any]) -> str:
    with suppress(TypeError, ValueError):
        return f"({', '.join(inspect.signature(function).parameters)})"
    return "(…)"


def _where(error: BaseException, in_answer: bool) -> tuple[tuple[str, str], ...]:
    """Return the learner's line that failed, and the error's message, each with its name."""
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if "course_utils" not in frame.filename]
    cells = [f for f in frames if "ipykernel" in f.filename or "ipython" in f.filename]
    # A forward is called by the check's model: the learner's frame is not the first one.
    shown = cells[-1:] or (frames[:1] if in_answer else [])
    lines = [
        (
            _("Line {lineno}, in {frame}").format(lineno=frame.lineno, frame=frame.name),
            frame.line or "",
        )
        for frame in shown
    ]
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    return (*lines, (_("Error"), brief(message, 600)))


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
