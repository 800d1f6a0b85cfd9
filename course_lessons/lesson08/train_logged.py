"""The rate in the log."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared.checking import one_thread
from course_utils import memory
from course_utils.exercises import Exercise, Judge


def train_logged(model, batches, optimizer, every, clock, log):
    total, samples, begin = 0, 0, clock()
    for step, (x, y) in enumerate(batches, 1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        samples += len(y)
        if step % every == 0 or step == len(batches):
            mean = total.item() / samples
            now = clock()
            log(step, mean, samples / (now - begin))
            total, samples, begin = 0, 0, now


class _Logged:
    """A training on the CPU with a clock that moves only in forward passes, and what was logged.

    Parameters
    ----------
    sizes
        The rows of each batch.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        torch.manual_seed(len(sizes))
        self.sizes = sizes
        self.now = 40.0
        self.model = nn.Linear(4, 3)
        self.model.register_forward_pre_hook(lambda _, args: self._tick(len(args[0])))
        self.batches = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in sizes]
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5, momentum=0.5)
        self.lines: list[tuple[Any, ...]] = []

    def _tick(self, rows: int) -> None:
        self.now += 0.25 + rows / 64

    def run(self, answer: Callable[..., Any], every: int) -> list[tuple[Any, ...]]:
        """Train, and return the lines of the log."""
        answer(
            self.model,
            self.batches,
            self.optimizer,
            every,
            lambda: self.now,
            lambda *line: self.lines.append(line),
        )
        return self.lines

    def losses(self) -> list[float]:
        """Train, and return the loss of each step."""
        found: list[float] = []
        for x, y in self.batches:
            train_logged(
                self.model,
                [(x, y)],
                self.optimizer,
                1,
                lambda: self.now,
                lambda step, loss, rate: found.append(loss),
            )
        return found


def _means(sizes: Sequence[int], losses: Sequence[float], begin: int, end: int) -> dict[str, float]:
    """Return what may be logged as the loss of some steps: the right one under no name."""
    rows, values = sizes[begin:end], losses[begin:end]
    return {
        "": _mean(rows, values),
        "mean-of-means": sum(values) / len(values),
        "last-loss": values[-1],
        "since-start": _mean(sizes[:end], losses[:end]),
        "summed": _mean(rows, values) * sum(rows),
    }


def _mean(rows: Sequence[int], values: Sequence[float]) -> float:
    return sum(n * value for n, value in zip(rows, values, strict=True)) / sum(rows)


@one_thread()
def _check_train_logged(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, every in (((8, 8, 8, 8, 3, 8, 5), 3), ((6, 2, 6, 4), 2), ((7, 9), 5)):
        losses = _Logged(sizes).losses()
        lines = _Logged(sizes).run(answer, every)
        ends = [*range(every, len(sizes) + 1, every)]
        ends += [len(sizes)] if len(sizes) % every else []
        if any(len(line) != 3 for line in lines):
            judge.no("three-things", seen=lines[0], expected="step, loss and samples a second")
        if [line[0] for line in lines] != ends:
            tail = [line[0] for line in lines] == ends[:-1]
            judge.no(
                "no-tail" if tail else "other-steps",
                seen=f"logged after steps {[line[0] for line in lines]}, every {every} of {len(sizes)}",
                expected=f"after steps {ends}",
            )
        for begin, (step, loss, rate) in zip((0, *ends), lines, strict=False):
            if isinstance(loss, Tensor) or isinstance(rate, Tensor):
                judge.no("tensor", seen="a tensor in the log", expected="Python numbers")
            means = _means(sizes, losses, begin, step)
            right = means.pop("")
            where = f"for steps {begin + 1} to {step} with {list(sizes[begin:step])} samples"
            if not math.isclose(judge.number(loss), right, rel_tol=1e-4):
                like = [name for name, v in means.items() if math.isclose(loss, v, rel_tol=1e-4)]
                judge.no(
                    like[0] if like else "other-loss",
                    seen=f"loss {loss:.5g} {where}",
                    expected=f"{right:.5g}",
                )
            speed = _rate(sizes[begin:step])
            if not math.isclose(judge.number(rate), speed, rel_tol=1e-6):
                always = math.isclose(rate, _rate(sizes[:step]), rel_tol=1e-6)
                judge.no(
                    "since-start" if always else "other-rate",
                    seen=f"{rate:.5g} samples a second {where}",
                    expected=f"{speed:.5g}",
                )
    if problem := simgpu.problem():
        print(f"Judged on the CPU alone, where nothing waits. {problem}")
        return
    _judge_waits(answer, judge)


def _rate(sizes: Sequence[int]) -> float:
    return sum(sizes) / sum(0.25 + n / 64 for n in sizes)


def _judge_waits(answer: Callable[..., Any], judge: Judge) -> None:
    """Refuse waits in every step, and rates that leave out what the device has still to do."""
    lines: list[tuple[float, float]] = []
    steps, every, rows = 6, 5, 16384
    with memory.spare_device("4 GB") as device:
        clock = simgpu.clock(device)
        with torch.device("meta"):
            model = nn.Linear(1024, 1024)
        with memory.Hollow():
            model.to_empty(device=device)
            x = torch.empty(rows, 1024, device=device)
            y = torch.zeros(rows, dtype=torch.int64, device=device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            torch.sim.synchronize(device)
            start = clock.host
            with simgpu.count() as counters:
                answer(
                    model,
                    [(x, y)] * steps,
                    optimizer,
                    every,
                    lambda: clock.host,
                    lambda step, loss, rate: lines.append((clock.host, rate)),
                )
            torch.sim.synchronize(device)
            del x, y, model, optimizer
    logs = math.ceil(steps / every)
    if counters.synchronizations > 2 * logs:
        judge.no(
            "waits-each-step",
            seen=f"the host waited {counters.synchronizations} times in {steps} steps",
            expected=f"{logs} times, once for each line of the log",
        )
    right = every * rows / (lines[0][0] - start)
    if not math.isclose(lines[0][1], right, rel_tol=0.02):
        judge.no(
            "launch-rate",
            seen=f"{lines[0][1]:,.0f} samples a second (modelled) in the first line",
            expected=f"{right:,.0f}: the device is not done when the host has launched",
        )


EXERCISE = Exercise(
    id="08.train_logged",
    title="The rate in the log",
    level=2,
    minutes=10,
    task="""
The log of the loop in the cell says millions of samples a second, and an epoch takes far longer than that. The
loop has four faults. Write `train_logged(model, batches, optimizer, every, clock, log)`, which trains as it
does. After every `every` steps, and after the last step, it calls `log(step, loss, rate)` once: the number of
steps so far; the mean loss of a sample since the last line, a Python number; and the samples a second since the
last line, by `clock()`, which gives seconds. `batches` is a list of `(x, y)` on the device, of unequal size.
The host waits once a line, no more often.
""",
    hints=(
        "What does the clock measure, if the host reads it right after it has launched the last kernel?",
        "Reading the loss waits for everything before it. So in which order do you read loss and clock?",
        "Keep the sum of `loss.detach() * len(y)` as a tensor. For a line: `.item()` first, then `clock()`, "
        "then set sum, number of samples and begin anew.",
    ),
    reference=train_logged,
    check_answer=_check_train_logged,
    why="Between two waits a host's clock measures how fast Python launches. The one read that the log needs "
    "anyway is also the wait that makes its clock honest, if it comes first.",
    diagnoses={
        "waits-each-step": "The host waits in every step. Only a line of the log needs a number.",
        "launch-rate": "The clock was read before the device had done its work, so the rate is that of the "
        "launches.",
        "since-start": "That is counted from the beginning of the training. Sum, samples and clock begin anew "
        "with each line.",
        "mean-of-means": "That is the mean of the batches' means. The batches differ in size.",
        "last-loss": "That is the loss of the last batch alone.",
        "summed": "That is a sum, not a mean.",
        "no-tail": "The last steps are in no line.",
        "other-steps": "The lines do not come after every `every` steps and after the last one, each once.",
        "other-loss": "That is not the mean loss of a sample since the last line.",
        "other-rate": "That is not samples by seconds since the last line.",
        "three-things": "`log` takes the step, the loss and the rate.",
        "tensor": "Hand Python numbers to the log. A tensor would wait for the device later, or never be read.",
    },
    may_change=True,
)
