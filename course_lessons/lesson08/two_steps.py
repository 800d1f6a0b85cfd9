"""Two optimisers, one scaler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
from course_utils.exercises.forms import several
from course_utils.exercises.values import nearly

from .checking import labelled, unguarded


def two_steps(model, x, y, loss_fn, optimizers, scaler, dtype):
    with torch.autocast(x.device.type, dtype=dtype):
        loss = loss_fn(model(x), y)
    for optimizer in optimizers:
        optimizer.zero_grad()
    scaler.scale(loss).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    return loss.detach()


class _Pair:
    """A network in two parts, an optimiser for each, and one scaler that changes its scale soon.

    Attributes
    ----------
    factors
        What the gradients of the two parts are multiplied by: ``inf`` makes one overflow by itself.
    backwards
        How many backward passes went through the first part.
    """

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        body, head = self.model[0], self.model[2]
        self.optimizers = [
            torch.optim.SGD(body.parameters(), lr=0.1),
            torch.optim.SGD(head.parameters(), lr=0.05, momentum=0.5),
        ]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        self.factors = [1.0, 1.0]
        self.backwards = 0
        self.outputs: set[torch.dtype] = set()
        for i, layer in enumerate((body, head)):
            for p in layer.parameters():
                p.grad = torch.full_like(p, 0.5)  # left over from an earlier step
                p.register_hook(lambda g, i=i: g * self.factors[i])
        body.bias.register_hook(self._count)
        head.register_forward_hook(lambda *args: self.outputs.add(args[2].dtype))

    def _count(self, _: Tensor) -> None:
        self.backwards += 1

    def state(self) -> tuple[float, list[Tensor]]:
        """Return the scale and the weights."""
        return self.scaler.get_scale(), [p.detach().clone() for p in self.model.parameters()]


_REFUSED = {
    "since the last update": "no-update",
    "_scale is None": "not-scaled",
    "prior to update": "nothing-stepped",
    "for this optimizer": "no-gradients",
}


_OVERFLOWS = ((1.0, 1.0), (math.inf, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, math.inf), (1.0, 1.0))
_BATCHES = labelled((4, 5, 3, 4, 6, 4))


def _run(step: Callable[..., Any], judge: Judge | None = None) -> list[Any]:
    """Make the six steps; return scale and weights after each."""
    pair, states = _Pair(), []
    for (x, y), factors in zip(_BATCHES, _OVERFLOWS, strict=True):
        pair.factors[:] = factors
        before = pair.backwards
        parts = pair.model, x, y, F.cross_entropy, pair.optimizers, pair.scaler, torch.float16
        try:
            with torch.no_grad(), torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(pair.model(x), y)
            pair.outputs.clear()
            got = step(*parts)
            if judge:
                _judge_step(got, loss, pair, pair.backwards - before, judge)
        except (RuntimeError, AssertionError) as error:
            for words, kind in _REFUSED.items():
                if judge and words in str(error):
                    judge.no(kind, seen=str(error), expected="calls in their order")
            if judge:
                raise
            break
        states.append(pair.state())
    return states + [None] * (len(_BATCHES) - len(states))


def _judge_step(got: Any, loss: Tensor, pair: _Pair, backwards: int, judge: Judge) -> None:
    if pair.outputs != {torch.float16}:
        judge.no(seen=f"{pair.outputs}", expected="float16 out of the layers")
    if backwards > 1:
        judge.no(seen=f"{backwards} backward passes", expected="one pass")
    judge.is_a(got, Tensor, "a tensor")
    if got.requires_grad:
        judge.no(seen=got, expected="the loss without its graph")
    if not nearly(1e-3)(got, loss):
        judge.no(seen=got, expected=loss)


def _check_two_steps(answer: Callable[..., Any], judge: Judge) -> None:
    states, right = _run(unguarded(answer), judge), _run(two_steps)
    alike = nearly(1e-3, 1e-5)
    if alike(states, right):
        return

    def say(at: int) -> tuple[str, str]:
        parts = [part for part, f in zip(("first", "second"), _OVERFLOWS[at], strict=True) if f > 1]
        case = f", step {at + 1}" + "".join(f", in which the {part} overflows" for part in parts)
        (scale, weights), (usual, others) = states[at], right[at]
        off = [
            part
            for part, a, b in zip(("first", "second"), weights[::2], others[::2], strict=True)
            if not alike(a, b)
        ]
        which = f"other weights in the {' and the '.join(off)} part" if off else "the right weights"
        return f"scale {scale:g}, {which}{case}", f"scale {usual:g}, and the right weights"

    judge.closest(
        states,
        right,
        {kind: [_run(twin) for twin in several(twins)] for kind, twins in TWO_TWINS.items()},
        alike=alike,
        say=say,
    )


_STEP = "scaler.step(optimizer)"
_STEPS = f"for optimizer in optimizers:\n    {_STEP}"
_BARE = "scaler.unscale_({0})\n{0}.step()"
_FINITE = "all(p.grad.isfinite().all() for p in model.parameters())"
_MISTAKES = {
    "update-each": {"scaler.update()": "    scaler.update()"},
    "skips-both": {_STEP: f"scaler.unscale_(optimizer)\nif {_FINITE}:\n    {_STEP}"},
    "bare-step": (
        {_STEP: _BARE.format("optimizer")},
        {_STEPS: f"scaler.step(optimizers[0])\n{_BARE.format('optimizers[1]')}"},
        {_STEPS: f"{_BARE.format('optimizers[0]')}\nscaler.step(optimizers[1])"},
    ),
    "still-scaled": (
        {_STEPS: "scaler.step(optimizers[0])\noptimizers[1].step()"},
        {_STEPS: "optimizers[0].step()\nscaler.step(optimizers[1])"},
    ),
    "twice": {_STEP: f"{_STEP}\noptimizer.step()"},
}
TWO_TWINS: dict[str, Any] = twins_of(two_steps, _MISTAKES)


EXERCISE = Exercise(
    id="08.two_steps",
    title="Two optimisers, one scaler",
    level=3,
    minutes=12,
    task="""
A network's two parts have an optimiser each: one for an embedding, say, one for the rest. Write
`two_steps(model, x, y, loss_fn, optimizers, scaler, dtype)`: one mixed-precision step, from one loss and one backward
pass, with **both** `optimizers`, which together hold all parameters. Where the gradients of one part overflow, only
that part's step is left out. Gradients of an earlier step may still be there. Return the loss as a tensor, unscaled
and without its graph.
""",
    hints=(
        "Which of `scale`, `step` and `update` belongs to the loss, which to an optimiser, and which to the scaler?",
        "All gradients of one backward pass have the same scale. So until when must the scale stay as it is?",
        "Zero both, one scaled backward, `scaler.step` for each, and one `scaler.update()`.",
    ),
    reference=two_steps,
    check_answer=_check_two_steps,
    why="`scaler.step` keeps its books by optimiser, so one part can skip and the other go on. `update()` closes the books of all of them: "
    "after it, a gradient that is still scaled would be divided by another scale.",
    diagnoses={
        "update-each": "The scaler was updated between the two steps. The second one's gradients still had the old "
        "scale.",
        "skips-both": "One part overflowed, and both steps were left out.",
        "bare-step": "`optimizer.step()` was called in the place of `scaler.step`, and takes gradients that overflowed too.",
        "still-scaled": "One of the optimisers stepped by itself, with gradients that still had the scale.",
        "twice": "Each optimiser makes two steps: `scaler.step` has made one.",
    },
)
