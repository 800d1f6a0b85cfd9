"""Gradients that never meet."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.checking import Alive, how_far_off, one_thread
from course_lessons.shared.edited import twins_of
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


class _Training:
    """Trains the network for some steps; knows how many gradient bytes were alive at most.

    Parameters
    ----------
    make_optimizer
        Makes an optimizer of parameters.
    fuse
        What puts the step into backward; None for the plain loop.
    """

    def __init__(
        self, make_optimizer: Callable[..., Any], fuse: Callable[..., Any] | None = None
    ) -> None:
        torch.manual_seed(5)
        self.model = _Tower()
        before = [p.detach().clone() for p in self.model.parameters()]
        self.gradients = Alive()
        for p in self.model.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda p: self.gradients.add(p.grad))
        self.left: list[Tensor] = []
        self.first: list[Tensor] = []
        if fuse:
            fuse(self.model, make_optimizer)
        optimizer = None if fuse else make_optimizer(self.model.parameters())
        for rows in (4, 7, 3):
            x, y = torch.randn(rows, 6), torch.randint(3, (rows,))
            F.cross_entropy(self.model(x), y).backward()
            if optimizer:
                optimizer.step()
                optimizer.zero_grad()
            self.left += [p.grad.clone() for p in self.model.parameters() if p.grad is not None]
            parameters = zip(self.model.parameters(), before, strict=True)
            self.moved = [p.detach() - b for p, b in parameters]
            self.first = self.first or self.moved


_MAKERS = (
    functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
    functools.partial(torch.optim.Adam, lr=0.01),
)


_STEP = "optimizers[parameter].step()"
_MISTAKES = {
    "forgets": {_STEP: "make_optimizer([parameter]).step()"},
}
_TWINS = twins_of(step_in_backward, _MISTAKES)


@one_thread()
def _check_step_in_backward(answer: Callable[..., Any], judge: Judge) -> None:
    found, usual = [], [_Training(make_optimizer) for make_optimizer in _MAKERS]
    trained = [p.requires_grad for p in usual[0].model.parameters()]
    for make_optimizer in _MAKERS:
        got = _Training(make_optimizer, answer)
        found.append(got)
        if any(bool(m.any()) and not t for t, m in zip(trained, got.moved, strict=True)):
            judge.no(seen="a frozen parameter changed", expected="it stays")
        still = [not m.any() for t, m in zip(trained, got.first, strict=True) if t]
        if any(still):
            alone = "late-names" if not still[-1] and sum(still) == len(still) - 1 else "some-moved"
            judge.no(
                "none-moved" if all(still) else alone,
                seen=f"{sum(still)} of {sum(trained)} parameters are as before the first backward()",
                expected="all of them trained",
            )
        if got.left:
            judge.no(
                "gradients-stay" if any(bool(g.any()) for g in got.left) else "wrong-value",
                seen="gradients after backward()",
                expected="none is left",
            )
        most = max(p.nbytes for p in got.model.parameters())
        if got.gradients.peak > 2 * most:
            judge.no(
                "all-at-once",
                seen=f"{got.gradients.peak:,} bytes of gradients at once",
                expected=f"about {most:,}, the largest one; all together are "
                f"{usual[0].gradients.peak:,}",
            )
    right = [training.moved for training in usual]
    moved = [training.moved for training in found]
    offs = [how_far_off(got, expected) for got, expected in zip(moved, right, strict=True)]
    if max(offs) > 1e-4:
        judge.closest(
            moved,
            right,
            {kind: [[_Training(m, twin).moved for m in _MAKERS]] for kind, twin in _TWINS.items()},
            alike=lambda got, right: how_far_off(got, right) < 1e-4,
            say=lambda at: (
                f"weights whose change is {offs[at]:.0%} off after three steps",
                "those of backward(), step() and zero_grad()",
            ),
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
        "Autograd must call you when a gradient is complete and in `.grad`. Look through the methods of a tensor "
        "that have `hook` in their name.",
        "`parameter.register_post_accumulate_grad_hook(f)` calls `f(parameter)` when `parameter.grad` is "
        "complete. Momentum must last from step to step, so make the optimizers once, one a parameter.",
        "Keep the optimizers in a dict with the parameters as keys. In the hook: step, then `zero_grad()`, "
        "which sets the gradient to None.",
    ),
    reference=step_in_backward,
    check_answer=_check_step_in_backward,
    why="Now there is room for one gradient in the place of all: a quarter less of what Adam in float32 needs "
    "beside the activations. The price: no clipping by the norm of all gradients, no accumulation, and no "
    "GradScaler, because each of them must see all gradients before the first step.",
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
