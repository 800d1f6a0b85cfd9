"""Three faults in one loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn import functional as F

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited

from .checking import alike, differ, made_batches, sgd, small_model


def train_epoch(model, batches, optimizer):
    model.train()
    total = seen = 0
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        seen += len(y)
    return total / seen


_WITHOUT_ZERO = edited(train_epoch, {"optimizer.zero_grad()": ""})


def _check_train_epoch(answer: Callable[..., Any], judge: Judge) -> None:
    for sizes in ((4, 4, 3), (5, 2)):
        batches = made_batches(sizes)
        model, right, piled = (small_model().eval() for _ in range(3))
        expected = train_epoch(right, batches, sgd(right))
        _WITHOUT_ZERO(piled, batches, sgd(piled))
        order, modes, optimizer = [], [], sgd(model)
        model.register_forward_pre_hook(lambda m, _, seen=modes: seen.append(m.training))
        model[0].weight.register_hook(lambda _, seen=order: seen.append("backward"))
        optimizer.register_step_pre_hook(lambda *_, seen=order: seen.append("step"))
        got = answer(model, batches, optimizer)
        if not order or order.count("step") != len(batches):
            judge.no(
                "steps",
                seen=f"{order.count('step')} steps over {len(batches)} batches",
                expected=f"{len(batches)} steps",
            )
        if order[0] == "step":
            judge.no("step-first", seen="step() before the first backward()", expected="after it")
        if not all(modes):
            judge.no("not-train-mode", seen="a forward pass in eval mode", expected="train mode")
        if alike(model, small_model()):
            judge.no("nothing-learned", seen="the weights never moved", expected="new weights")
        if alike(model, piled):
            judge.no("piles-up", seen=differ(model, right), expected="each batch's own gradient")
        if not alike(model, right):
            judge.no("weights", seen=differ(model, right), expected="the weights of a right loop")
        number = judge.is_a(got, float, "a Python float")
        judge.close(number, expected, "ragged-mean", rel=1e-4)


EXERCISE = Exercise(
    id="03.train_epoch",
    title="Three faults in one loop",
    level=1,
    minutes=8,
    task="""
The loop below runs without an error and has three faults. Mend them. Your `train_epoch` trains the
model for one pass over `batches`, a list of `(x, y)`, with cross-entropy, and returns the mean loss
of one digit over the pass, as a Python float. The last batch is smaller than the others.
""",
    hints=(
        "Read the five lines aloud in the order of the section above. Which is missing, and which "
        "two have changed places?",
        "The loss that `cross_entropy` returns is the mean of a batch. A batch of 3 must not count "
        "as much as a batch of 64.",
        "In the loop: `loss`, then `optimizer.zero_grad()`, `loss.backward()`, `optimizer.step()`. "
        "Add `loss.item() * len(y)`, and divide by the number of digits seen.",
    ),
    reference=train_epoch,
    check_answer=_check_train_epoch,
    why="None of the three raises an error: the loss still falls, only to a worse place, and the "
    "number you print is not the number you think. That is why loops are checked by what they do.",
    diagnoses={
        "piles-up": "The gradients of earlier batches are still in the sum when a step is taken: "
        "`backward()` adds to `.grad`, it does not replace it.",
        "step-first": "The optimiser steps before the first gradient exists, so every step uses "
        "the gradient of the batch before, or none.",
        "ragged-mean": "The mean over batches is not the mean over digits when the last batch is "
        "smaller: weight each batch's loss by its number of digits.",
        "not-train-mode": "The model was handed over in eval mode, and the loop left it there. A "
        "training loop asks for the mode it needs.",
        "nothing-learned": "The gradients are thrown away between `backward()` and `step()`, so "
        "the optimiser has nothing to apply.",
        "steps": "There must be one optimiser step for each batch.",
        "weights": "The weights after the pass are not those of a right loop.",
    },
)
