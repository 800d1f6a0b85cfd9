"""A watchman who does not stop the traffic."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared.checking import keeps, norm, one_thread
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import OverCases, several
from course_utils.exercises.values import nearly

from .checking import other_device, plain


def train_watched(model, batches, optimizer, every):
    losses = []
    for step, (x, y) in enumerate(batches, start=1):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % every == 0 or step == len(batches):
            good = torch.stack(losses).isfinite().tolist()
            if False in good:
                return good.index(False)


class _Shifted(nn.Module):
    """A classifier; the last input is added to the first logit, so it can make a loss infinite."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits = self.net(x[:, :6])
        return torch.cat([logits[:, :1] + x[:, 6:], logits[:, 1:]], dim=1)


class _Track:
    """A model and its batches on a device; a batch that is broken gives a loss that is not finite."""

    def __init__(self, device: torch.device, n: int, broken: Mapping[int, float]) -> None:
        generator = torch.Generator().manual_seed(n)
        self.model = _Shifted().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = 0
        self.optimizer.register_step_post_hook(self._step)
        self.batches = []
        for i in range(n):
            x = torch.randn(4, 7, generator=generator)
            x[2, 6] = broken.get(i, x[2, 6])
            self.batches.append((x.to(device), torch.tensor([1, 2, 0, 0]).to(device)))

    def _step(self, *_: Any) -> None:
        self.steps += 1

    def run(self, train: Callable[..., Any], every: int) -> tuple[Any, int, list[Tensor]]:
        """Train; return the result, how many steps were made, and the weights."""
        got = train(self.model, self.batches, self.optimizer, every)
        return got, self.steps, [p.detach().cpu() for p in self.model.parameters()]


# Minus infinity makes its own loss infinite alone; nan and plus infinity spoil the weights, and so all losses after.
_INF = math.inf
_CASES = (
    (5, 2, {}),
    (4, 2, {}),
    (7, 3, {1: math.nan}),
    (6, 5, {1: -_INF, 3: -_INF}),
    (3, 3, {0: -_INF}),
    (3, 2, {2: -_INF}),
    (5, 3, {3: _INF}),
    (3, 10, {2: math.nan}),
    (3, 1, {1: math.nan}),
    (7, 3, {4: -_INF, 5: math.nan}),
)


def _on(device: torch.device, train: Callable[..., Any]) -> Callable[..., tuple[Any, int, Any]]:
    return lambda n, every, broken: _Track(device, n, broken).run(train, every)


def _once(train: Callable[..., Any]) -> Callable[..., tuple[Any, int, Any]]:
    """Return what a function of ours does on the CPU; each case is run once, and remembered."""
    known: dict[str, tuple[Any, int, Any]] = {}

    def trained(n: int, every: int, broken: Mapping[int, float]) -> tuple[Any, int, Any]:
        key = f"{n} {every} {broken}"
        if key not in known:
            known[key] = _on(_CPU, train)(n, every, broken)
        return known[key]

    return trained


def _read(judge: Judge, got: tuple[Any, int, Any]) -> tuple[Any, int, Any]:
    return got[0] if got[0] is None else judge.number(plain(got[0])), *got[1:]


def _alike(got: tuple[Any, int, Any], right: tuple[Any, int, Any]) -> bool:
    """Whether result and steps are the same, and, where no loss is broken, the weights."""
    same = got[:2] == right[:2]
    return same and (right[0] is not None or nearly(1e-4, 1e-5)(got[2], right[2]))


def _otherwise(got: Any, right: Any, n: int, every: int, broken: Mapping[int, float]) -> str:
    number, steps, _ = got
    if number is not None and not broken:
        return "wrong-value"
    if number is None and broken and steps >= right[1]:
        return "wrong-value"
    if steps < right[1]:
        return "wrong-value"
    if steps > right[1]:
        return "wrong-value" if steps == n else "stops-late"
    return "wrong-value"


_GOOD = "good = torch.stack(losses).isfinite().tolist()"
_FOUND = "return good.index(False)"
_NAN = "torch.stack(losses).isnan().logical_not()"
_MISTAKES = {
    "no-last-look": {" or step == len(batches)": ""},
    "nan-alone": {"torch.stack(losses).isfinite()": _NAN},
    "one-loss": tuple(
        {_GOOD: "good = [bool(loss.isfinite())]", _FOUND: f"return {what}"}
        for what in ("step - 1", "step")
    ),
}
TWINS = twins_of(train_watched, _MISTAKES)
_CPU = torch.device("cpu")
_VALUES = OverCases(
    _once(train_watched),
    _CASES,
    {name: tuple(_once(twin) for twin in several(twins)) for name, twins in TWINS.items()},
    read=_read,
    alike=_alike,
    otherwise=_otherwise,
    situation=lambda n, every, broken: (
        f"{n} steps, every={every}, "
        + (f"broken: {', '.join(map(str, broken))}" if broken else "all good")
    ),
    shown=lambda value: (
        f"{value[0] if value[0] is None else format(value[0], 'g')} after {value[1]} steps"
        + ("" if value[0] is not None else f", weights of norm {norm(value[2]):.5g}")
    ),
)


@one_thread()
def _check_train_watched(answer: Callable[..., Any], judge: Judge) -> None:
    _VALUES(_on(_CPU, keeps(answer, judge, 1)), judge)
    if simgpu.problem():
        print("Judged without the simulated device: the result, not the reads.")
        return
    with other_device() as device:
        for n, every, broken in _CASES[1:4]:
            track = _Track(device, n, broken)
            with simgpu.count() as counted:
                answer(track.model, track.batches, track.optimizer, every)
            looks = math.ceil(track.steps / every)
            if counted.synchronizations > looks:
                judge.no(
                    "reads-each-step" if counted.synchronizations >= track.steps else "wrong-value",
                    seen=f"the host waited {counted.synchronizations} times in {track.steps} steps, every={every}",
                    expected=f"at most {looks}, one for each look",
                )


EXERCISE = Exercise(
    id="08.train_watched",
    title="A watchman who does not stop the traffic",
    level=3,
    minutes=15,
    task="""
A loss that is `nan` or infinite must stop the training, but `if loss.isnan()` makes the host wait in each step. Write
`train_watched(model, batches, optimizer, every)`: train with cross-entropy, one step for each `(x, y)` of the list,
and look at the losses after each `every` steps and after the last. A look is **one** read from the device. If a loss
was not finite, stop there, and return the number of the first such step, counted from 0; otherwise `None`, at the end.
""",
    hints=(
        "Between two looks, the losses can wait on the device, without their graphs.",
        "`torch.stack(losses).isfinite().tolist()` is one read, for any number of losses.",
        "Append `loss.detach()` in each step. Look where `step % every == 0`, counted from 1, and after the last step; "
        "the place of the first `False` is the answer.",
    ),
    reference=train_watched,
    check_answer=_check_train_watched,
    may_change=True,
    why="The price is at most `every` wasted steps, and those would have been wasted on a dead model. The same "
    "pattern serves for logging and for early stopping: collect on the device, look rarely, read once.",
    diagnoses={
        "reads-each-step": "The host waits in every step. Leave the losses on the device until it is time to look.",
        "stops-late": "The training went on past the look at which it should have stopped.",
        "no-last-look": "After the last step nobody looked, where the steps are no multiple of `every`.",
        "nan-alone": "A loss that is infinite went unnoticed. It is as bad as nan.",
        "one-loss": "Each look saw the loss of its own step alone. Those since the last look matter too.",
    },
)
