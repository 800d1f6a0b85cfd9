"""A fair comparison."""

from __future__ import annotations

import functools
import statistics
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases
from course_utils.exercises.values import nearly

from .checking import Mistakes, by_columns, plain, twins_by_column


def compare(formats, seeds, train, accuracy, machine):
    table = {}
    for name, dtype in formats.items():
        train(dtype, seeds[0])
        scores, times, peaks = [], [], []
        for seed in seeds:
            machine.reset_peak()
            machine.synchronize()
            start = machine.clock()
            model = train(dtype, seed)
            machine.synchronize()
            times.append(machine.clock() - start)
            peaks.append(machine.peak())
            scores.append(accuracy(model))
            del model  # the next training's peak holds no older network
        table[name] = scores, statistics.median(times), max(peaks)
    return table


class _Machine:
    """A machine with a queue, a clock and a meter, and the training that runs on it.

    ``clock()`` reads the host's time; a training only queues its work. Training and evaluation have
    their own peaks. The first training in each format takes longer.
    """

    launch = 0.25

    def __init__(self) -> None:
        self.now = self.queue = 0.0
        self.top, self.evaluated = 900, 0
        self.runs: list[tuple[Any, Any]] = []
        self.models: weakref.WeakSet[Any] = weakref.WeakSet()
        self.kept = 0  # the most earlier models that were there during a training

    def clock(self) -> float:
        """Return the host's time."""
        return self.now

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.now = max(self.now, self.queue)

    def reset_peak(self) -> None:
        """Forget the peak."""
        self.top = 100

    def peak(self) -> int:
        """Return the most bytes since the last reset."""
        return self.top

    def seconds(self, dtype: Any, seed: Any) -> float:
        """How long a training takes once its kernels are loaded."""
        return (3.0 if dtype is torch.float32 else 2.0) + (0.5, 0.9, 0.0, 1.0, 2.5, 0.75)[seed % 6]

    def bytes(self, dtype: Any, seed: Any) -> int:
        """The peak of a training."""
        return (400 if dtype is torch.float32 else 300) + (30, 10, 60, 20, 50, 40)[seed % 6]

    def train(self, dtype: Any, seed: Any) -> Callable[[], float]:
        """Queue a training; return its model."""
        cold = 0 if any(done is dtype for done, _ in self.runs) else 8
        self.runs.append((dtype, seed))
        self.queue = max(self.queue, self.now) + self.seconds(dtype, seed) + cold
        self.now += self.launch
        self.top = max(self.top, self.bytes(dtype, seed))
        self.kept = max(self.kept, len(self.models))
        self.models.add(model := functools.partial(self.score, dtype, seed))
        return model

    def accuracy(self, model: Any) -> float:
        """Evaluate a model, and wait for the result."""
        self.queue = max(self.queue, self.now) + 5
        self.synchronize()
        self.evaluated += 1
        self.top = max(self.top, 700 + self.evaluated)
        return model()

    @staticmethod
    def score(dtype: Any, seed: Any) -> float:
        """The accuracy of a model."""
        return 90 + seed / 8 + (0.0625 if dtype is torch.float32 else 0)


_FORMATS = {"float32": torch.float32, "float16": torch.float16}


def _cases() -> Iterator[tuple[Any, ...]]:
    for formats, seeds in (
        (_FORMATS, (1, 2, 3)),
        ({"bfloat16": torch.bfloat16, "float32": torch.float32}, (5, 3, 4, 2, 1)),
        (_FORMATS, (4, 2, 0, 1)),  # an even number has no middle one
        ({"float16": torch.float16}, (3, 0)),
    ):
        machine = _Machine()
        yield formats, seeds, machine.train, machine.accuracy, machine


_SYNC_START = "machine.synchronize()\nstart"
_SYNC_STOP = "machine.synchronize()\ntimes"
_LAUNCHES, _EVALUATED = {_SYNC_STOP: "times"}, {_SYNC_STOP: "accuracy(model)\ntimes"}
_RESET = "machine.reset_peak()"
_COLUMNS = "accuracies", "seconds", "bytes"
MISTAKES: Mistakes = {
    "only-launches": {"seconds": (_LAUNCHES, {**_LAUNCHES, _SYNC_START: "start"})},
    "times-evaluation": {"seconds": (_EVALUATED, {**_EVALUATED, _SYNC_START: "start"})},
    "never-reset": {"bytes": ({_RESET: ""},)},
}


def _tabled(compare: Callable[..., Any]) -> Callable[..., dict[str, dict[str, Any]]]:
    return lambda *case: {
        name: dict(zip(_COLUMNS, row, strict=True)) for name, row in compare(*case).items()
    }


def _read(judge: Judge, table: Any) -> dict[str, dict[str, Any]]:
    judge.is_a(table, dict, "a dict: for each format its accuracies, seconds and bytes")
    read = {}
    for name, row in table.items():
        judge.is_a(row, (tuple, list), "a tuple: accuracies, seconds, bytes")
        if len(row) != 3:
            judge.no(seen=row, expected="(accuracies, seconds, bytes)")
        scores = plain(row[0])
        if isinstance(row[1], (list, tuple)) and not isinstance(scores, (list, tuple)):
            judge.no(seen=row, expected="(accuracies, seconds, bytes)")
        if isinstance(scores, (int, float)):
            judge.no(seen=scores, expected="a list, one for each seed")
        judge.is_a(scores, (list, tuple), "a list of accuracies")
        numbers = [judge.number(value) for value in (*scores, *row[1:])]
        read[name] = dict(zip(_COLUMNS, (numbers[:-2], *numbers[-2:]), strict=True))
    return read


_alike = by_columns(nearly(1e-6, 1e-9))


def _otherwise(got: Any, right: Any, formats: dict[str, Any], *_: Any) -> str:
    for name in formats:
        for column in _COLUMNS:
            if not _alike(got[name][column], right[name][column]):
                return f"other-{column}"
    return "wrong-value"


_TABLES = OverCases(
    _tabled(compare),
    _cases,
    twins_by_column(compare, MISTAKES, _tabled),
    read=lambda judge, got: got,
    alike=_alike,
    otherwise=_otherwise,
    situation=lambda formats, seeds, *_: f"seeds {list(seeds)}",
    shown=lambda table: "; ".join(
        f"{row['accuracies']}, {row['seconds']:g} s, {row['bytes']:g} bytes"
        for row in table.values()
    ),
)


def _check_compare(answer: Callable[..., Any], judge: Judge) -> None:
    def traced(formats: Any, seeds: Sequence[int], *rest: Any) -> Any:
        table = _read(judge, answer(formats, seeds, *rest))
        if set(table) != set(formats):
            judge.no(seen=list(table), expected=list(formats))
        _judge_runs(rest[-1], formats, seeds, judge)
        if any(len(row["accuracies"]) != len(seeds) for row in table.values()):
            counts = [len(row["accuracies"]) for row in table.values()]
            judge.no(seen=f"{counts} accuracies", expected=f"{len(seeds)} each")
        return table

    _TABLES(traced, judge)


def _judge_runs(machine: _Machine, formats: Any, seeds: Sequence[int], judge: Judge) -> None:
    for few in (True, False):
        for name, dtype in formats.items():
            trained = [seed for done, seed in machine.runs if done is dtype]
            ran = f"{name}: trained with seeds {trained}"
            if few and set(seeds) - set(trained):
                judge.no("other-seeds", seen=ran, expected=f"each of the seeds {list(seeds)}")
            if few and len(trained) == len(seeds):
                judge.no("no-warm-up", seen=ran, expected=f"{len(seeds) + 1} trainings")
            if not few and len(trained) > len(seeds) + 1:
                judge.no(seen=ran, expected=f"{len(seeds) + 1} trainings")
    if machine.kept:
        judge.no(
            seen=f"earlier networks during a training: {machine.kept}",
            expected="none",
        )


EXERCISE = Exercise(
    id="08.compare",
    title="A fair comparison",
    level=3,
    minutes=15,
    task="""
Write `compare(formats, seeds, train, accuracy, machine)`. `formats` maps names to dtypes. `train(dtype, seed)` returns
a network as soon as its training is queued; the first call in each format is slower, so warm up once in each.
`accuracy(network)` evaluates it. `machine` has `clock()`, in seconds, `synchronize()`, `reset_peak()`, and `peak()`,
the most bytes since the reset. Return a dict: for each name the tuple **(list of accuracies in the order of the seeds,
median seconds of a training, largest peak of a training)**. Only training counts, not evaluation, nor networks
that are kept: evaluate each before the next, and then let go of it (`del`).
""",
    hints=(
        "For one training, write down in order: what must have happened before you read the clock, and "
        "what before you read it again?",
        "Evaluation takes time and memory too. So read clock and peak before it.",
        "Per format: one training that is thrown away. Per seed: reset the peak, synchronise, clock, train, "
        "synchronise, clock, peak, and only then the accuracy.",
    ),
    reference=compare,
    check_answer=_check_compare,
    why="Four short rules, and each is broken in published comparisons: the same seeds for all, warm up, wait before "
    "each look at the clock, and keep evaluation out of what you claim about training.",
    diagnoses={
        "no-warm-up": "The first training in a format is slower, and here it was one of those that count.",
        "other-seeds": "Each format must be trained with all the seeds, else the comparison is not fair.",
        "only-launches": "The clock was read while the work was still in the queue. Wait for it first.",
        "times-evaluation": "The evaluation was timed together with the training.",
        "never-reset": "The peak was never reset: an older one is still there.",
    },
)
