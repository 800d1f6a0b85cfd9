"""Accumulation with a ragged end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge

from .checking import alike, differ, made_batches, sgd, small_model


def train_accumulated(model, batches, optimizer, k):
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        count = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            loss = F.cross_entropy(model(x), y, reduction="sum") / count
            loss.backward()
        optimizer.step()


def _check_train_accumulated(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes, k in (((4, 4, 4, 4), 2), ((4, 4, 4, 1, 3), 2), ((3, 2), 1), ((5, 2), 3)):
        batches = made_batches(sizes)
        model, right = small_model(norm=False), small_model(norm=False)
        large = [
            tuple(torch.cat(part) for part in zip(*batches[i : i + k], strict=True))
            for i in range(0, len(batches), k)
        ]
        train_accumulated(right, large, sgd(right), 1)
        steps, optimizer = [], sgd(model)
        optimizer.register_step_pre_hook(lambda *_, seen=steps: seen.append(1))
        forwards: list[int] = []
        model.register_forward_pre_hook(lambda _, args, seen=forwards: seen.append(len(args[0])))
        graphs = _Graphs(model)
        answer(model, batches, optimizer, k)
        if forwards and max(forwards) > max(sizes):
            judge.no(
                "large-batch",
                seen=f"a batch of {max(forwards)} went through the model",
                expected=f"at most {max(sizes)} at a time",
            )
        if graphs.most > 1:
            judge.no("all-graphs", seen=f"{graphs.most} graphs at once", expected="one at a time")
        if len(steps) != len(large):
            tail = len(steps) == len(batches) // k
            judge.no(
                "tail-dropped" if tail else "steps",
                seen=f"{len(steps)} steps for {len(batches)} batches and k = {k}",
                expected=f"{len(large)} steps",
            )
        if not alike(model, right):
            judge.no(
                "piles-up" if len(set(sizes)) == 1 else "not-by-count",
                seen=f"{differ(model, right)}, for batches of {', '.join(map(str, sizes))}",
                expected=f"the weights after steps on batches of "
                f"{', '.join(str(len(y)) for _, y in large)}",
            )


class _Graphs:
    """The most forward passes with a graph that a model made before a backward pass."""

    def __init__(self, model: nn.Sequential) -> None:
        self.now = self.most = 0
        model.register_forward_hook(self._forward)
        model[0].weight.register_hook(self._backward)

    def _forward(self, _: nn.Module, __: object, out: torch.Tensor) -> None:
        self.now += out.requires_grad
        self.most = max(self.most, self.now)

    def _backward(self, _: torch.Tensor) -> None:
        self.now = 0


EXERCISE = Exercise(
    id="03.train_accumulated",
    title="Accumulation with a ragged end",
    level=3,
    minutes=12,
    task="""
Write `train_accumulated(model, batches, optimizer, k)`: every `k` batches of the list make **one**
optimiser step, and each step must use the gradient of the mean loss over all their digits, as if they
had come as one large batch, with one batch's graph in memory at a time. The last batch can be smaller,
and the last group can have fewer than `k` batches. It still gets its step. The model comes in train mode.
""",
    hints=(
        "Walk over the list in groups: `batches[first : first + k]`. The last group is shorter all "
        "by itself.",
        "A group's number of digits is known before its first forward pass. Divide by it, not by k.",
        'For each group: `zero_grad()`; for each batch `cross_entropy(..., reduction="sum") / '
        "count` and `backward()`; then `step()`.",
    ),
    reference=train_accumulated,
    check_answer=_check_train_accumulated,
    why="Many loops divide by k and drop the tail. Nothing fails then, but the small last batch "
    "counts too much, and the last digits of each epoch are never learned from.",
    diagnoses={
        "not-by-count": "The digits of the small batches got another weight than those of the "
        "large ones, or a short group was divided by the wrong number.",
        "large-batch": "The large batch itself went through the model. It is the one that does not "
        "fit: one batch and one graph at a time.",
        "all-graphs": "The graphs of several batches were alive at once, and all their activations "
        "with them: as much memory as the large batch takes.",
        "tail-dropped": "The batches after the last full group never got a step.",
        "piles-up": "The gradient of one group is still there in the next, or it is not the mean "
        "over the group.",
        "steps": "The number of optimiser steps is not the number of groups.",
    },
)
