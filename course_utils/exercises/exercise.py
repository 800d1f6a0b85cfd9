"""An exercise: its texts, its reference solution, and the check of a learner's answer.

A check has one of four outcomes: *not tried* (the stub is still there), *raised* (the learner's code raised
an exception; its line is shown), *not yet* (what was seen, what was expected, and which misunderstanding
that suggests) and *right* (and why it matters). No exception of the answer ends the notebook's cell.
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
"""The fields of an `Exercise` that a learner reads: its constructor translates them, without `_()`."""

LEVELS = {1: "●○○", 2: "●●○", 3: "●●●"}  # how an exercise's level is displayed


@dataclass
class Exercise:
    """One exercise: its texts, its reference solution, and a check of what an answer does.

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
        Called as ``check_answer(answer, judge)``. It calls ``judge.no``, which raises, at the first fault;
        it returns None if the answer is right.
    why
        Why the right answer matters: shown with *right*.
    diagnoses
        For each diagnosis id that the check may give to ``judge.no``, the text for the learner.
    limit
        The time limit of a check, in seconds.
    may_change
        Whether the answer may modify its arguments in place.
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
        """Whether the answer is a value rather than a function: the reference takes no arguments."""
        return not inspect.signature(self.reference).parameters

    def check(self, answer: Any) -> None:
        """Check an answer, show the result, and append the attempt to the local progress file.

        An answer that was *not tried* is not recorded. The first *not yet* mentions the hints.
        """
        result = self.result(answer)
        if result.outcome == "not_yet" and not self._hints_mentioned:
            result = dataclasses.replace(
                result, aside=_("Stuck? `ex.{slug}.hint()` helps.").format(slug=self.slug)
            )
            self._hints_mentioned = True
        if result.outcome != "not_tried":
            progress_file.record_attempt(self.id, result.outcome, result.diagnosis)
        show(result.bundle())

    def result(self, answer: Any) -> Result:
        """Check an answer and return the result, without showing or recording it.

        Exceptions of the answer become part of the result; what it prints is captured in ``printed``. An
        answer that still has ``todo()`` isn't run. Over the time limit it is *not yet*. What is restored
        afterwards is what `guard.run` restores.

        If the simulated GPU is in a worker process, a function runs there: what it changes here is lost. One
        that can't be sent there runs here.

        Parameters
        ----------
        answer
            The learner's function, or value.
        """
        from simgpu import worker

        if _is_unsolved(answer):
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
        """Return the answer if it is right, else the reference, so that later cells work with either.

        The answer is checked again; nothing is shown or recorded. For a value, the reference is the function
        that returns it.
        """
        return answer if self.result(answer).outcome == "right" else self.reference

    def hint(self) -> None:
        """Show the next hint; after the last one, show that again."""
        n_hints = len(self.hints)
        all_given = self._hints_given == n_hints
        self._hints_given = min(self._hints_given + 1, n_hints)
        text = _("**Hint {hints_given} of {of}.** {hint}").format(
            hints_given=self._hints_given, of=n_hints, hint=self.hints[self._hints_given - 1]
        )
        end = _("That was the last hint. `ex.{slug}.solution()` shows the answer.").format(slug=self.slug)
        self._show_markdown(f"{text}\n\n{end}" if all_given else text)

    def solution(self) -> None:
        """Show the reference solution's source, and why it matters."""
        source = _as_assignment(self.source) if self.wants_value else self.source
        self._show_markdown(f"```python\n{source}```\n\n{self.why}")

    @property
    def source(self) -> str:
        """The reference's source code."""
        return textwrap.dedent(inspect.getsource(self.reference))

    def _show_markdown(self, markdown: str) -> None:
        """Display Markdown in a notebook, print it elsewhere."""
        if in_notebook():
            from IPython.display import Markdown, display

            display(Markdown(markdown))
        else:
            print(markdown)

    def _run_check(self, answer: Any) -> Result:
        """Check an answer; return the result, also for any exception of the answer or of the check."""
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
        """Check the answer's kind and arguments, then call `check_answer`; return if right, else raise."""
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
        if not _accepts_same_arguments(answer, self.reference):
            seen, expected = (f"{self.slug}{_signature(f)}" for f in (answer, self.reference))
            judge.no("wrong-arguments", seen=seen, expected=expected)
        self.check_answer(_wrapped_answer(answer, judge, self.may_change), judge)

    def _not_tried(self) -> Result:
        """Return the result of an answer that still has the stub."""
        text = _(
            "`todo()` is still there. Write your answer in its place, or delete its line where the comment "
            "says so. Then run the cell again. Stuck? `ex.{slug}.hint()` gives a nudge."
        ).format(slug=self.slug)
        return Result(self.id, "not_tried", text=text)

    def _not_yet(self, diagnosis: str, seen: str, expected: str = "") -> Result:
        """Return the result of a refusal, with its diagnosis's text; ``"wrong-value"`` if it has none."""
        texts = {**COMMON, **self.diagnoses}
        # A check that exercises share may give a diagnosis for which this one has no text.
        diagnosis = diagnosis if diagnosis in texts else "wrong-value"
        pairs = ((_("Seen"), seen), (_("Expected"), expected))
        details = tuple((name, value) for name, value in pairs if value)
        return Result(self.id, "not_yet", diagnosis, texts[diagnosis], details)

    def _raised(self, error: BaseException, error_with_case: BaseException, *, in_answer: bool) -> Result:
        """Return the result of an exception, and make it ``sys.last_value``.

        ``error_with_case`` is the exception whose attribute ``case``, if any, names the failing case;
        ``in_answer`` is whether the learner's code raised it, rather than the check.
        """
        text = _("The check called your code, and this came out:")
        if isinstance(error, MemoryError) or "can't allocate memory" in brief(error):
            text = _("The check called your code, and it asked for more memory than a check may take:")
        details = (*_error_details(error, in_answer), *getattr(error_with_case, "case", ()))
        # For explain(), without the traceback, which would keep frames alive.
        sys.last_value = BaseException.with_traceback(error, None)
        return Result(self.id, "raised", brief(type(error).__name__), text, details)


def _check_in_worker(ident: str, answer: Any) -> tuple[Result, Any]:
    """Check an answer in a worker process; return the result and that process's ``sys.last_value``."""
    exercise = getattr(importlib.import_module(__package__).lesson(ident[:2]), ident[3:])
    return exercise.result(answer), getattr(sys, "last_value", None)


def _is_unsolved(answer: Any) -> bool:
    """Return whether an answer is ``todo()``, or a function whose code still calls it."""
    code = getattr(answer, "__code__", None)
    return isinstance(answer, Todo) or (isinstance(code, CodeType) and _calls_todo(code))


def _calls_todo(code: CodeType) -> bool:
    """Return whether a code object, or one nested in it, uses the name ``todo``."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return todo.__name__ in code.co_names or any(map(_calls_todo, inner))


def _as_assignment(source: str) -> str:
    """Return the body of a function that ends in ``return VALUE``, with ``answer = VALUE`` instead."""
    before, _, value = source.partition(":\n")[2].rpartition("return ")
    return textwrap.dedent(before + "answer = " + value)


def _wrapped_answer(answer: Callable[..., Any], judge: Judge, may_change: bool) -> Callable[..., Any]:
    """Return a wrapper of the learner's function for the check to call.

    An exception of the function is raised as `Raised`, a returned ``todo()`` as `NotTried`. Modified
    arguments are refused as ``"changed-input"``, unless ``may_change``. PyTorch's modes are restored.
    """

    @functools.wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        inputs = [] if may_change else filter(_is_copyable, [*args, *kwargs.values()])
        before = [(value, _detached_copy(value)) for value in inputs]
        modes = guard.modes()
        try:
            returned = answer(*args, **kwargs)
        except guard.Stop:
            raise
        except BaseException as error:  # noqa: BLE001  (whatever it was, it is the learner's)
            raise Raised(error) from None
        finally:
            guard.restore_modes(modes)
        if isinstance(returned, Todo):
            raise NotTried
        for value, old in before:
            if not same(value, old):
                judge.no("changed-input", seen=value, expected=old)
        return returned

    return call


def _is_copyable(value: object) -> bool:
    """Return whether a value is plain data: arrays, numbers, texts, None, or containers of these."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_copyable, value))
    if isinstance(value, Mapping):
        return all(map(_is_copyable, value.values()))
    return is_array(value) or isinstance(value, (int, float, str, bytes, type(None)))


def _detached_copy(value: Any) -> Any:
    """Return a deep copy of data; tensors are detached from the autograd graph, mappings become dicts."""
    if isinstance(value, (list, tuple)):
        items = map(_detached_copy, value)
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, Mapping):
        return {key: _detached_copy(item) for key, item in value.items()}
    return value.detach().clone() if hasattr(value, "detach") else copy.deepcopy(value)


def _accepts_same_arguments(answer: Callable[..., Any], reference: Callable[..., Any]) -> bool:
    """Return whether the answer can be called with as many positional arguments as the reference has."""
    try:
        inspect.signature(answer).bind(*inspect.signature(reference).parameters)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature: let the check call it
        pass
    return True


def _signature(function: Callable[..., Any]) -> str:
    """Return a function's parameter names in parentheses, or ``"(…)"`` if it has no signature."""
    with suppress(TypeError, ValueError):
        return f"({', '.join(inspect.signature(function).parameters)})"
    return "(…)"


def _error_details(error: BaseException, in_answer: bool) -> tuple[tuple[str, str], ...]:
    """Return (label, text) pairs for an error: the learner's line that raised it, if known, and the message.

    ``in_answer`` is whether the learner's code raised it, rather than the check.
    """
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if "course_utils" not in frame.filename]
    cells = [f for f in frames if "ipykernel" in f.filename or "ipython" in f.filename]
    # The check's model may call the learner's forward: the learner's frame is not always the first one.
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
    """A text stream that keeps at most `most` characters, so that an endless loop cannot fill memory."""

    most = 20_000

    def write(self, text: str) -> int:
        """Append the text up to the limit; return its length, as if all was written."""
        if self.tell() < self.most:
            super().write(text[: self.most - self.tell()])
        return len(text)

    def text(self) -> str:
        """The printed text, abbreviated for showing."""
        return brief(io.StringIO.getvalue(self).strip(), 1000)

    def close(self) -> None:
        """Do nothing: the answer may close ``sys.stdout``, but the check continues to use it."""
