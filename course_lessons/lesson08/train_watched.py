"""A watchman who does not stop the traffic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import simgpu
from course_utils.exercises import Exercise, Judge
from simgpu.counters import Counters

from .checking import other_device


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
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits = self.net(x[:, :6])
        return torch.cat([logits[:, :1] + x[:, 6:], logits[:, 1:]], dim=1)


class _Track:
    """A model and its batches on a device; the batch at ``broken`` gives a loss of that value."""

    def __init__(self, device: torch.device, n: int, broken: int | None, value: float) -> None:
        self.model = _Shifted().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps = 0
        self.optimizer.register_step_post_hook(self._step)
        for p in self.model.parameters():  # left over from an earlier step
            p.grad = torch.ones_like(p)
        self.batches = []
        for i in range(n):
            x = torch.randn(4, 7)
            if i == broken:
                x[2, 6] = value
            self.batches.append((x.to(device), torch.tensor([1, 2, 0, 0]).to(device)))

    def _step(self, *_: Any) -> None:
        self.steps += 1

    def weights(self) -> Tensor:
        """All weights, on the host."""
        return torch.cat([p.detach().cpu().flatten() for p in self.model.parameters()])


def _check_train_watched(answer: Callable[..., Any], judge: Judge) -> None:
    if simgpu.problem():
        print("Judged without the simulated device: the result, not the reads.")
    with other_device() as other:
        device = torch.device("cpu") if other.type == "meta" else other
        for n, every, broken, value in (
            (5, 2, None, 0.0),
            (9, 4, 1, math.nan),
            (3, 3, 0, -math.inf),
            (5, 2, 4, -math.inf),
            (3, 10, 2, math.nan),
            (3, 1, 1, math.nan),
        ):
            track = _Track(device, n, broken, value)
            with simgpu.count() as counted:
                got = answer(track.model, track.batches, track.optimizer, every)
            _judge_watch(got, track, n, every, broken, counted, judge)
            if broken is None:
                right = _Track(device, n, broken, value)
                train_watched(right.model, right.batches, right.optimizer, every)
                if not torch.allclose(track.weights(), right.weights(), atol=1e-5):
                    judge.no("not-trained", seen="other weights than after a plain training")


def _judge_watch(
    got: Any,
    track: _Track,
    n: int,
    every: int,
    broken: int | None,
    counted: Counters,
    judge: Judge,
) -> None:
    case = f"{n} steps, every={every}, " + (
        f"step {broken} broken" if broken is not None else "all good"
    )
    last = n if broken is None else min(n, every * (broken // every + 1))
    if track.steps > last:
        kind = "never-stops" if track.steps == n else "stops-late"
        judge.no(kind, seen=f"{track.steps} steps; {case}", expected=f"at most {last}")
    if track.steps < last:
        judge.no("stops-early", seen=f"{track.steps} steps; {case}", expected=f"{last}")
    reads = math.ceil(last / every)
    if counted.copies_to_host > reads:
        judge.no(
            "reads-often",
            seen=f"{counted.copies_to_host} reads from the device; {case}",
            expected=f"at most {reads}",
        )
    if broken is None:
        if got is not None:
            judge.no("false-alarm", seen=f"{got}; {case}", expected="None")
        return
    if got is None:
        kind = "no-last-look" if broken >= n - n % every else "misses"
        judge.no(kind, seen=f"None; {case}", expected=str(broken))
    number = judge.number(got)
    if number == broken + 1:
        judge.no("counts-from-one", seen=f"{got}; {case}", expected=str(broken))
    if number in (last, last - 1) and number != broken:
        judge.no("block-only", seen=f"{got}; {case}", expected=str(broken))
    if number != broken:
        judge.no("wrong-step", seen=f"{got}; {case}", expected=str(broken))


EXERCISE = Exercise(
    id="08.train_watched",
    title="A watchman who does not stop the traffic",
    level=3,
    minutes=15,
    task="""
A loss that is `nan` or infinite must stop the training, and `if loss.isnan()` in each step makes the host wait in each step.
Write `train_watched(model, batches, optimizer, every)`: train with cross-entropy, one step for each `(x, y)` of the
list, and look at the losses after each `every` steps and after the last. A look is **one** read from the device. If a loss
was not finite, stop there, and return the number of the first such step, counted from 0. Otherwise return `None`
at the end.
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
        "reads-often": "There were more reads from the device than looks. Leave the losses there until it is time.",
        "never-stops": "The training went on to the end, though a loss was not finite.",
        "stops-late": "The training went on after a look that should have stopped it.",
        "stops-early": "The training stopped before its end, or before its next look.",
        "no-last-look": "The last steps are fewer than `every`, and nobody looked at them.",
        "misses": "A loss that was not finite went unnoticed. Infinite is as bad as nan.",
        "false-alarm": "All losses were finite.",
        "counts-from-one": "Steps are counted from 0.",
        "block-only": "That is the step of the look, not the first one with a bad loss.",
        "wrong-step": "That is not the first step with a bad loss.",
        "not-trained": "The weights are not those of a plain training. Backward, step, and zero the gradients in between.",
    },
)
