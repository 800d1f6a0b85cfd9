"""A watchman who does not stop the traffic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import simgpu
from course_lessons.shared import memory
from course_lessons.shared.checking import keeps, one_thread
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import ComparesToReference, as_tuple
from course_utils.exercises.values import nearly


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


def _trained(
    train: Callable[..., Any],
    device: torch.device,
    n: int,
    every: int,
    broken: tuple[tuple[int, float], ...],
) -> tuple[Any, ...]:
    """Train with some batches whose loss is not finite; return result, steps, weights and waits."""
    generator = torch.Generator().manual_seed(n)
    model = _Shifted().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(1))
    batches = []
    for i in range(n):
        x = torch.randn(4, 7, generator=generator)
        x[2, 6] = dict(broken).get(i, x[2, 6])
        batches.append((x.to(device), torch.tensor([1, 2, 0, 0]).to(device)))
    with simgpu.count() as counters:
        got = train(model, batches, optimizer, every)
    weights = [p.detach().cpu() for p in model.parameters()] if got is None else None
    return got, len(steps), weights, counters.synchronizations


_GOOD = "good = torch.stack(losses).isfinite().tolist()"
MISTAKES = known_mistakes_of(
    train_watched,
    {
        "stops-late": {"step % every": "step % (2 * every)"},
        "no-last-look": {" or step == len(batches)": ""},
        "nan-alone": {
            "torch.stack(losses).isfinite()": "torch.stack(losses).isnan().logical_not()"
        },
        "one-loss": tuple(
            {_GOOD: "good = [bool(loss.isfinite())]", "good.index(False)": number}
            for number in ("step - 1", "step")
        ),
    },
)
_CPU = torch.device("cpu")
# Minus infinity makes its own loss infinite alone; nan and plus infinity spoil the weights, and so all losses after.
_INF, _NAN = math.inf, math.nan
_CASES = (
    *((5, 2, ()), (4, 2, ()), (7, 3, ((1, _NAN),)), (6, 5, ((1, -_INF), (3, -_INF)))),
    *((3, 3, ((0, -_INF),)), (3, 2, ((2, -_INF),)), (5, 3, ((3, _INF),))),
    *((3, 10, ((2, _NAN),)), (3, 1, ((1, _NAN),)), (7, 3, ((4, -_INF), (5, _NAN)))),
)


def _on_cpu(train: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that trains with ``train`` on the CPU, once for each case."""
    return functools.cache(functools.partial(_trained, train, _CPU))


_RESULTS = ComparesToReference(
    _on_cpu(train_watched),
    _CASES,
    {
        name: tuple(map(_on_cpu, as_tuple(known_mistakes)))
        for name, known_mistakes in MISTAKES.items()
    },
    read=lambda judge, got: (got[0] if got[0] is None else judge.number(got[0]), *got[1:]),
    look=lambda got, *_: got[:3],
    alike=nearly(1e-4, 1e-5),
    situation=lambda n, every, broken: (
        f"{n} steps, every={every}, "
        + (f"broken: {', '.join(str(step) for step, _ in broken)}" if broken else "all good")
    ),
    shown=lambda seen: (
        f"{seen[0] if seen[0] is None else format(seen[0], 'g')} after {seen[1]} steps"
    ),
)


@one_thread()
def _check_train_watched(answer: Callable[..., Any], judge: Judge) -> None:
    _RESULTS(functools.partial(_trained, keeps(answer, judge, 1), _CPU), judge)
    if simgpu.problem():
        print("Judged without the simulated device: the result, not the reads.")
        return
    with memory.spare_device("1 GB") as device:
        for n, every, broken in _CASES[1:4]:
            _, steps, _, waits = _trained(answer, device, n, every, broken)
            looks = math.ceil(steps / every)
            if waits > looks:
                kind = "reads-each-step" if waits >= steps else "wrong-value"
                seen = f"the host waited {waits} times in {steps} steps, every={every}"
                judge.no(kind, seen=seen, expected=f"at most {looks}, one for each look")


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
        "In this loop the host waits only when Python needs to know a value. So ask where the losses can "
        "stay until you look at them, and what each of them would keep in memory if it still had its graph.",
        "Put the detached loss of each step in a list. Nothing waits for that. At a look, make one tensor "
        "out of the list, ask it which entries are finite, and bring all the answers to Python with one "
        "`.tolist()`. Look after the last step, too. The answer is the place of the first bad loss among "
        "all losses so far.",
        """Here one read tells you which of several scores are too low:

```python
scores = [torch.tensor(0.9), torch.tensor(0.2), torch.tensor(0.4)]
passed = torch.stack(scores).gt(0.5).tolist()  # one read for all three
print(passed)  # [True, False, False]
print([i for i, ok in enumerate(passed) if not ok])  # [1, 2]
```""",
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
