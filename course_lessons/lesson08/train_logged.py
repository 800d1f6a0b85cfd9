"""The rate in the log."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.checking import keeps, one_thread
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import nearly

from .checking import plain


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


_CASES = (
    ((8, 8, 8, 8, 3, 8, 5), 3),
    ((6, 2, 6, 4), 2),
    ((7, 9), 5),
    ((5, 8, 2, 4, 6), 1),
    ((3, 9), 2),
)


def _logged(train: Callable[..., Any], sizes: Sequence[int], every: int) -> tuple[Any, ...]:
    """Train with a clock that moves in forward passes alone; return the lines of the log, and the weights."""
    torch.manual_seed(len(sizes))
    lines: list[tuple[Any, ...]] = []
    now = [40.0]

    def tick(_: nn.Module, args: tuple[Tensor]) -> None:
        now[0] += 0.25 + len(args[0]) / 64

    model = nn.Linear(4, 3)
    model.register_forward_pre_hook(tick)
    batches = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in sizes]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    train(model, batches, optimizer, every, lambda: now[0], lambda *line: lines.append(line))
    return lines, [p.detach().clone() for p in model.parameters()]


_MEAN = "total.item() / samples"
_RESET = "total, samples, begin = 0, 0, now"
_BY_STEP = {"loss.detach() * len(y)": "loss.detach()"}
_DONE = "((step - 1) % every + 1)"


_WRONG_STEPS = {}
STEPS = twins_of(train_logged, _WRONG_STEPS)
_WRONG_LOSSES = {
    "mean-of-means": {**_BY_STEP, _MEAN: f"total.item() / {_DONE}"},
    "since-start": {_RESET: ""},
}
LOSSES = twins_of(train_logged, _WRONG_LOSSES)
_WRONG_RATES = {
    "since-start": {_RESET: ""},
}
RATES = twins_of(train_logged, _WRONG_RATES)
_FIELDS = (
    ("other-steps", STEPS, "step"),
    ("other-loss", LOSSES, "loss"),
    ("other-rate", RATES, "rate"),
)


@one_thread()
def _check_train_logged(answer: Callable[..., Any], judge: Judge) -> None:
    got = [_logged(keeps(answer, judge, 1), *case) for case in _CASES]
    right = [_logged(train_logged, *case) for case in _CASES]
    lines = [[_read(line, judge) for line in lines] for lines, _ in got]
    for field, (otherwise, twins, name) in enumerate(_FIELDS):

        def column(lines: Sequence[Any], field: int = field) -> list[float]:
            return [line[field] for line in lines]

        def say(at: int, name: str = name, column: Callable[..., Any] = column) -> tuple[str, str]:
            sizes, every = _CASES[at]
            case = f"every {every} of {len(sizes)} steps with {list(sizes)} samples"
            values = (", ".join(f"{v:.4g}" for v in column(x)) for x in (lines[at], right[at][0]))
            seen, expected = (f"{name} {text or 'never'}" for text in values)
            return f"{seen}, {case}", expected

        gave, wanted = list(map(column, lines)), [column(expected) for expected, _ in right]
        if nearly(1e-4)(gave, wanted):
            continue
        judge.closest(
            gave,
            wanted,
            {
                kind: [
                    [column(_logged(twin, *case)[0]) for case in _CASES] for twin in several(some)
                ]
                for kind, some in twins.items()
            },
            alike=nearly(1e-4),
            otherwise=otherwise,
            say=say,
        )
    for (_, weights), (_, expected) in zip(got, right, strict=True):
        if not nearly(1e-3, 1e-5)(weights, expected):
            judge.no(seen=weights, expected=expected)
    if problem := simgpu.problem():
        print(f"Judged on the CPU alone, where nothing waits. {problem}")
        return
    _judge_waits(answer, judge)


def _read(line: tuple[Any, ...], judge: Judge) -> tuple[float, ...]:
    if len(line) != 3:
        judge.no(seen=line, expected="step, loss and samples a second")
    if any(isinstance(value, Tensor) for value in line[1:]):
        judge.no(seen=line, expected="Python numbers")
    return tuple(judge.number(plain(value)) for value in line)


def _judge_waits(answer: Callable[..., Any], judge: Judge) -> None:
    """Refuse waits in every step, and rates that leave out what the device has still to do."""
    lines: list[tuple[float, float]] = []
    steps, every, rows = 6, 4, 16384
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
    if counters.synchronizations > logs:
        judge.no(
            "waits-each-step" if counters.synchronizations >= steps else "wrong-value",
            seen=f"the host waited {counters.synchronizations} times in {steps} steps",
            expected=f"{logs} times, once for each line of the log",
        )
    begin = start
    for number, (end, rate) in enumerate(lines):
        right = (steps - every if number else every) * rows / (end - begin)
        if not math.isclose(rate, right, rel_tol=0.02):
            judge.no(
                "begins-elsewhere" if number else "launch-rate",
                seen=f"{rate:,.0f} samples a second (modelled) in line {number + 1}",
                expected=f"{right:,.0f}",
            )
        begin = end


EXERCISE = Exercise(
    id="08.train_logged",
    title="The rate in the log",
    level=2,
    minutes=10,
    task="""
The loop below logs millions of samples a second, and an epoch takes far longer than that. It has four faults. Write
`train_logged(model, batches, optimizer, every, clock, log)`, which trains as it does. After every `every` steps, and
after the last, it calls `log(step, loss, rate)` once: the number of steps so far and, since the last line, the mean
loss of a sample, a Python number, and the samples a second by `clock()`, in seconds. `batches` is a list of `(x, y)`
on the device, of unequal size. The host waits once a line.
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
        "begins-elsewhere": "The time of a line must begin where the last one's ended: at the clock that was read after the wait.",
        "since-start": "That is counted from the beginning of the training. Sum, samples and clock begin anew "
        "with each line.",
        "mean-of-means": "That is the mean of the batches' means. The batches differ in size.",
    },
    may_change=True,
)
