"""Two optimisers, one scaler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited

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
    """

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
        body, head = self.model[0], self.model[2]
        self.optimizers = [
            torch.optim.SGD(body.parameters(), lr=0.1),
            torch.optim.AdamW(head.parameters(), lr=0.01),
        ]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        self.factors = [1.0, 1.0]
        self.bare = [0, 0]
        self.outputs: set[torch.dtype] = set()
        for i, layer in enumerate((body, head)):
            for p in layer.parameters():
                p.grad = torch.full_like(p, 0.5)  # left over from an earlier step
                p.register_hook(lambda g, i=i: g * self.factors[i])
        head.register_forward_hook(lambda *args: self.outputs.add(args[2].dtype))

    def weights(self) -> list[Tensor]:
        """The weights of the two parts."""
        return [
            torch.cat([p.detach().flatten().clone() for p in self.model[i].parameters()])
            for i in (0, 2)
        ]

    def is_like(self, other: _Pair) -> bool:
        """Whether scale and weights are those of another pair."""
        return self.scaler.get_scale() == other.scaler.get_scale() and all(
            torch.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True)
            for a, b in zip(self.weights(), other.weights(), strict=True)
        )


_REFUSED = {
    "since the last update": "no-update",
    "_scale is None": "not-scaled",
    "inf checks": "refused",
}


_OVERFLOWS = ((1.0, 1.0), (math.inf, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, math.inf), (1.0, 1.0))


def _check_two_steps(answer: Callable[..., Any], judge: Judge) -> None:
    answer = unguarded(answer)
    pair, right = _Pair(), _Pair()
    others = {name: _Pair() for name in TWO_TWINS}
    batches = labelled((4, 5, 3, 4, 6, 4))
    for (x, y), factors in zip(batches, _OVERFLOWS, strict=True):
        for one in (pair, right, *others.values()):
            one.factors[:] = factors
        given = (F.cross_entropy, pair.optimizers, pair.scaler, torch.float16)
        try:
            got = answer(pair.model, x, y, *given)
        except (RuntimeError, AssertionError) as error:
            for words, kind in _REFUSED.items():
                if words in str(error):
                    judge.no(kind, seen=str(error), expected="calls in their order")
            raise
        expected = two_steps(
            right.model, x, y, F.cross_entropy, right.optimizers, right.scaler, torch.float16
        )
        for name, twin in TWO_TWINS.items():
            other = others[name]
            twin(other.model, x, y, F.cross_entropy, other.optimizers, other.scaler, torch.float16)
        if pair.outputs != {torch.float16}:
            judge.no("no-autocast", seen=f"{pair.outputs}", expected="float16 out of the layers")
        _judge_pair(pair, right, others, factors, judge)
        judge.is_a(got, Tensor, "a tensor")
        if got.requires_grad:
            judge.no("keeps-graph", seen=got, expected="the loss without its graph")
        judge.close(got, expected.item(), "scaled-loss", rel=1e-3)


def _judge_pair(
    pair: _Pair, right: _Pair, others: dict[str, _Pair], factors: tuple[float, ...], judge: Judge
) -> None:
    if pair.is_like(right):
        return
    like = [name for name, other in others.items() if pair.is_like(other)]
    case = "".join(
        f", after the {part} overflowed"
        for part, f in zip(("first", "second"), factors, strict=True)
        if f > 1
    )
    judge.no(
        like[0] if like else "other-step",
        seen=f"scale {pair.scaler.get_scale():g}, weights "
        + ("as they should be" if _same_weights(pair, right) else "that are others")
        + case,
        expected=f"scale {right.scaler.get_scale():g}",
    )


def _same_weights(pair: _Pair, right: _Pair) -> bool:
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-5)
        for a, b in zip(pair.weights(), right.weights(), strict=True)
    )


_ZERO = "for optimizer in optimizers:\n    optimizer.zero_grad()"
_STEP = "scaler.step(optimizer)"
TWO_TWINS: dict[str, Callable[..., Any]] = {
    "update-each": edited(two_steps, {"scaler.update()": "    scaler.update()"}),
    "skips-both": edited(
        two_steps,
        {
            _STEP: "scaler.unscale_(optimizer)\n"
            f"if all(p.grad.isfinite().all() for p in model.parameters()):\n    {_STEP}"
        },
    ),
    "bare-step": edited(
        two_steps,
        {
            f"for optimizer in optimizers:\n    {_STEP}": "scaler.step(optimizers[0])\n"
            "scaler.unscale_(optimizers[1])\noptimizers[1].step()"
        },
    ),
    "piles-up": edited(two_steps, {_ZERO: "optimizers[0].zero_grad()"}),
    "piles-up-both": edited(two_steps, {_ZERO: ""}),
}


EXERCISE = Exercise(
    id="08.two_steps",
    title="Two optimisers, one scaler",
    level=3,
    minutes=12,
    task="""
A network whose two parts have an optimiser each (a GAN's, or an embedding's beside the rest). Write
`two_steps(model, x, y, loss_fn, optimizers, scaler, dtype)`: one training step in mixed precision, from one
loss, with **all** of `optimizers`, which together hold all parameters. Where the gradients of one part overflow, only that part's step is
left out. Gradients of an earlier step may still be there. Return the loss as a tensor, unscaled and without its graph.
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
        "bare-step": "One of the optimisers stepped by itself, gradients that overflowed included.",
        "not-scaled": "The backward pass went without the scale.",
        "piles-up": "Gradients of an earlier step are in one of the parts.",
        "piles-up-both": "Gradients of an earlier step are still there.",
        "no-update": "The scaler was never told that the step is over.",
        "refused": "The scaler refused a call: the order is not the one it needs.",
        "no-autocast": "The layers did not compute in the dtype that was asked for.",
        "keeps-graph": "The loss still has its graph, and with it the activations.",
        "scaled-loss": "That is not the loss as `loss_fn` gave it.",
        "other-step": "Weights or scale are not those of a right step.",
    },
)
