"""A fair comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_utils.exercises import Exercise, Judge


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
        self.top = 900
        self.runs: list[tuple[Any, Any]] = []

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
        return (3.0 if dtype is torch.float32 else 2.0) + {1: 0.5, 2: 0.0, 3: 1.0}.get(seed, 0.75)

    def bytes(self, dtype: Any, seed: Any) -> int:
        """The peak of a training."""
        return (400 if dtype is torch.float32 else 300) + 10 * seed

    def train(self, dtype: Any, seed: Any) -> tuple[str, Any, Any]:
        """Queue a training; return its model."""
        cold = 0 if any(done is dtype for done, _ in self.runs) else 8
        self.runs.append((dtype, seed))
        self.queue = max(self.queue, self.now) + self.seconds(dtype, seed) + cold
        self.now += self.launch
        self.top = max(self.top, self.bytes(dtype, seed))
        return "model", dtype, seed

    def accuracy(self, model: Any) -> float:
        """Evaluate a model, and wait for the result."""
        self.queue = max(self.queue, self.now) + 5
        self.synchronize()
        self.top = max(self.top, 700)
        return self.score(*model[1:])

    @staticmethod
    def score(dtype: Any, seed: Any) -> float:
        """The accuracy of a model."""
        return 90 + seed / 10 + (0.05 if dtype is torch.float32 else 0)


def _check_compare(answer: Callable[..., Any], judge: Judge) -> None:
    half, bf16 = torch.float16, torch.bfloat16
    for formats, seeds in (
        ({"float32": torch.float32, "float16": half}, (1, 2, 3)),
        ({"bfloat16": bf16, "float32": torch.float32}, (5, 3, 1, 2, 4)),
    ):
        machine = _Machine()
        got = answer(formats, seeds, machine.train, machine.accuracy, machine)
        judge.is_a(got, dict, "a dict: for each format its scores, seconds and bytes")
        if list(got) != list(formats):
            judge.no("other-keys", seen=list(got), expected=list(formats))
        for name, dtype in formats.items():
            row = judge.is_a(got[name], (tuple, list), "a tuple: scores, seconds, bytes")
            if len(row) != 3:
                judge.no("other-row", seen=row, expected="(scores, seconds, bytes)")
            _judge_runs(machine, dtype, seeds, name, judge)
            _judge_scores(row[0], machine, dtype, seeds, judge)
            _judge_seconds(judge.number(row[1]), machine, dtype, seeds, judge)
            _judge_peak(judge.number(row[2]), machine, dtype, seeds, judge)


def _judge_runs(
    machine: _Machine, dtype: Any, seeds: Sequence[int], name: str, judge: Judge
) -> None:
    trained = [seed for done, seed in machine.runs if done is dtype]
    ran = f"{name}: trained with seeds {trained}"
    if sorted(trained) == sorted(seeds):
        judge.no("no-warm-up", seen=ran, expected="one training more, before those that count")
    if set(seeds) - set(trained):
        judge.no("other-seeds", seen=ran, expected=f"each of the seeds {list(seeds)}")
    if len(trained) > len(seeds) + 1:
        judge.no("too-many-runs", seen=ran, expected=f"{len(seeds) + 1} trainings")


def _judge_scores(
    scores: Any, machine: _Machine, dtype: Any, seeds: Sequence[int], judge: Judge
) -> None:
    right = [machine.score(dtype, seed) for seed in seeds]
    if isinstance(scores, (int, float)):
        judge.no("mean-score", seen=scores, expected=right)
    got = [judge.number(value) for value in judge.is_a(scores, (list, tuple), "a list of scores")]
    if got != right:
        judge.no("other-scores", seen=got, expected=right)


def _judge_seconds(
    got: float, machine: _Machine, dtype: Any, seeds: Sequence[int], judge: Judge
) -> None:
    times = [machine.seconds(dtype, seed) for seed in seeds]
    right = statistics.median(times)
    if math.isclose(got, right):
        return
    cold = [times[0] + 8, *times[1:]]
    known = {
        "only-launches": machine.launch,
        "times-evaluation": right + 5,
        "mean-time": statistics.fmean(times),
        "best-time": min(times),
        "mean-with-warm-up": statistics.median(cold),
    }
    like = [name for name, value in known.items() if math.isclose(got, value)]
    judge.no(
        like[0] if like else "wrong-seconds",
        seen=f"{got:g} s; the {len(seeds)} trainings took {', '.join(f'{t:g}' for t in times)} s",
        expected=f"{right:g} s",
    )


def _judge_peak(
    got: float, machine: _Machine, dtype: Any, seeds: Sequence[int], judge: Judge
) -> None:
    each = [machine.bytes(dtype, seed) for seed in seeds]
    if got == max(each):
        return
    diagnosis = {900: "never-reset", 700: "peak-of-evaluation", 100: "reset-late"}.get(
        int(got), "wrong-peak"
    )
    seen = f"{got:g} bytes; the trainings needed {', '.join(map(str, each))}"
    judge.no(diagnosis, seen=seen, expected=f"{max(each)} bytes")


EXERCISE = Exercise(
    id="08.compare",
    title="A fair comparison",
    level=3,
    minutes=15,
    task="""
Write `compare(formats, seeds, train, accuracy, machine)`. `formats` maps names to dtypes.
`train(dtype, seed)` trains a network and returns it as soon as its work is queued; its first call in each format
is slower. `accuracy(model)` evaluates one. `machine` has `clock()`, which returns seconds, `synchronize()`,
`reset_peak()` and `peak()`, which returns the most bytes since the reset. Return a dict: for each name the tuple
**(list of accuracies in the order of the seeds, median seconds of a training, largest peak of a training)**.
Warm up once in each format. Only training counts, not evaluation.
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
        "other-seeds": "Each format must be trained with all the seeds, or the comparison is not fair.",
        "too-many-runs": "One training to warm up and one a seed are enough.",
        "other-keys": "The dict needs one entry for each format, in their order.",
        "other-row": "Each entry must be a tuple of three: accuracies, seconds, bytes.",
        "mean-score": "Return all the accuracies: their spread says whether a difference means anything.",
        "other-scores": "The accuracies are not those of the seeds, in their order.",
        "only-launches": "The clock was read while the work was still in the queue. Wait for it first.",
        "times-evaluation": "The evaluation was timed together with the training.",
        "mean-time": "That is the mean. One interruption moves a mean, and not a median.",
        "best-time": "That is the shortest time, not the median.",
        "mean-with-warm-up": "A training that had to warm up is among those that count.",
        "wrong-seconds": "That is not the median of the trainings' times. Was the queue empty at the start?",
        "never-reset": "The peak was never reset: an older one is still there.",
        "peak-of-evaluation": "The peak was read after the evaluation, which needed more than the training.",
        "reset-late": "The peak was reset after the training that it was to measure.",
        "wrong-peak": "That is not the largest peak of the trainings in this format.",
    },
)
