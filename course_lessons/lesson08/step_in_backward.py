"""Gradients that never meet."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import Alive, how_far_off, one_thread
from course_lessons.shared.edited import edited
from course_utils.exercises import Exercise, Judge


def step_in_backward(model, make_optimizer):
    optimizers = {p: make_optimizer([p]) for p in model.parameters() if p.requires_grad}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(update)


class _Tower(nn.Module):
    """A network with a frozen layer, and one that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.middle = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return three numbers a row."""
        x = torch.tanh(self.frozen(torch.tanh(self.first(x))))
        for layer in (*self.middle, self.middle[0]):
            x = torch.tanh(layer(x))
        return self.last(x)


def _trained(
    make_optimizer: Callable[..., Any], fuse: Callable[..., Any] | None = None
) -> SimpleNamespace:
    """Train for three steps, by the plain loop or with ``fuse``; return what that did."""
    torch.manual_seed(5)
    model = _Tower()
    parameters = list(model.parameters())
    before = [p.detach().clone() for p in parameters]
    gradients = Alive()
    for p in parameters:
        if p.requires_grad:
            p.register_post_accumulate_grad_hook(lambda p: gradients.add(p.grad))
    optimizer = fuse(model, make_optimizer) if fuse else make_optimizer(parameters)
    moved, left = [], []
    for rows in (4, 7, 3):
        x, y = torch.randn(rows, 6), torch.randint(3, (rows,))
        F.cross_entropy(model(x), y).backward()
        if not fuse:
            optimizer.step()
            optimizer.zero_grad()
        left += [p.grad.clone() for p in parameters if p.grad is not None]
        moved.append([p.detach() - b for p, b in zip(parameters, before, strict=True)])
    still = [not m.any() for p, m in zip(parameters, moved[0], strict=True) if p.requires_grad]
    return SimpleNamespace(moved=moved[-1], still=still, left=left, peak=gradients.peak)


_FORGETFUL = edited(
    step_in_backward, {"optimizers[parameter].step()": "make_optimizer([parameter]).step()"}
)


@one_thread()
def _check_step_in_backward(answer: Callable[..., Any], judge: Judge) -> None:
    largest = max(p.nbytes for p in _Tower().parameters())
    for make_optimizer in (
        functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        functools.partial(torch.optim.Adam, lr=0.01),
    ):
        got, right = _trained(make_optimizer, answer), _trained(make_optimizer)
        seen = f"{sum(got.still)} of {len(got.still)} parameters are as before the first backward()"
        if all(got.still):
            judge.no("none-moved", seen=seen, expected="all of them trained")
        if all(got.still[:-1]):
            judge.no("late-names", seen=seen, expected="all of them trained")
        if got.left:
            kind = "gradients-stay" if any(g.any() for g in got.left) else "wrong-value"
            judge.no(kind, seen="gradients after backward()", expected="none is left")
        if got.peak > 2 * largest:
            judge.no(
                "all-at-once",
                seen=f"{got.peak:,} bytes of gradients at once",
                expected=f"about {largest:,}, the largest one; all together are {right.peak:,}",
            )
        off = how_far_off(got.moved, right.moved)
        if off > 1e-4:
            forgetful = _trained(make_optimizer, _FORGETFUL).moved
            judge.no(
                "forgets" if how_far_off(got.moved, forgetful) < 1e-4 else "wrong-value",
                seen=f"weights whose change is {off:.0%} off after three steps",
                expected="those of backward(), step() and zero_grad()",
            )


EXERCISE = Exercise(
    id="08.step_in_backward",
    title="Gradients that never meet",
    level=3,
    minutes=10,
    task="""
Between `backward()` and `step()` every gradient is in memory at once, as large as the model. Write
`step_in_backward(model, make_optimizer)`: after it, each `loss.backward()` also trains. As soon as a parameter's
gradient is complete, the parameter is updated and its gradient freed. `make_optimizer(parameters)` takes a list. Some
parameters are frozen; one module is used twice. The weights must be those of `backward()`, `step()` and
`zero_grad()`.
""",
    hints=(
        "Autograd has to call you as soon as one parameter's gradient is complete and stored in `.grad`. A "
        "tensor has several methods with `hook` in their name. Ask which of them runs late enough, and what "
        "it gives to your function.",
        "`parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` when `parameter.grad` is "
        "complete, even if a module was used twice. In there, update the parameter, and then free its "
        "gradient. Momentum has to last from step to step. So make the optimisers beforehand, one for each "
        "parameter that trains, and keep them where `f` can find the right one.",
        """Here the same kind of hook keeps a note of each gradient's size, and finds its place by the
parameter:

```python
layer = torch.nn.Linear(3, 2)
norms = {}

def note(p):
    norms[p] = p.grad.norm()

for p in layer.parameters():
    p.register_post_accumulate_grad_hook(note)
layer(torch.ones(1, 3)).sum().backward()  # now norms has two entries
```""",
    ),
    reference=step_in_backward,
    check_answer=_check_step_in_backward,
    why="Only one gradient is in memory at a time, which saves a quarter of what Adam in float32 needs "
    "beside the activations. In return you can't clip by the norm of all gradients, accumulate, or use "
    "a GradScaler, because each of them must see all gradients before the first step.",
    diagnoses={
        "none-moved": "No parameter changed in the first `backward()`. A step has nothing to do while `.grad` is None, and what "
        "`register_hook` registers runs before the gradient is in `.grad`.",
        "late-names": "Only the last parameter changed. A function made in a loop looks up the loop's names when "
        "it is called, and then they hold what the last turn left.",
        "gradients-stay": "Gradients are left after `backward()`, and the next ones are added to them.",
        "all-at-once": "Most gradients were in memory at once: they were freed only at the end.",
        "forgets": "The weights are those of optimizers that forget: what one remembers, such as momentum, must last from step to "
        "step.",
    },
    may_change=True,
)
