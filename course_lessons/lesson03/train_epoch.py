"""Three faults in one loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.nn import functional as F

from course_lessons.shared.checking import made_batches
from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge

from .checking import (
    SAID,
    SLIPS,
    over,
    python_float,
    sgd,
    small_model,
    weights_after,
)


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


_ADDED, _GIVEN = "loss.item() * len(y)", "total / seen"
_WRONG_WEIGHTS = {
    **SLIPS,
    "not-train-mode": {"model.train()": ""},
    "calls-eval": {"model.train()": "model.eval()"},
    "other-order": {"in batches": "in reversed(batches)"},
}
_LEARNS = twins_of(train_epoch, _WRONG_WEIGHTS)
_COUNT = "total / len(batches)"
_WRONG_NUMBERS = {
    "ragged-mean": {_ADDED: "loss.item()", _GIVEN: _COUNT},
    "not-divided": {_GIVEN: "total"},
    "by-batches": {_GIVEN: _COUNT},
    "not-weighted": {_ADDED: "loss.item()"},
    "sum-of-means": {_ADDED: "loss.item()", _GIVEN: "total"},
    "all-as-the-first": (
        {_GIVEN: "total / (len(batches) * len(batches[0][1]))"},
        {_GIVEN: "total / (len(batches) * 64)"},
        {_GIVEN: "total / (len(batches) * len(y))"},
        {_GIVEN: "total / (len(batches) * max(len(y) for _, y in batches))"},
    ),
    "last-batch": {_GIVEN: "loss.item()"},
    "last-size": {"seen +=": "seen ="},
    "after-step": {_ADDED: "F.cross_entropy(model(x), y).item() * len(y)"},
    "percent": {_GIVEN: "100 * total / seen"},
    "exponential": {_GIVEN: "2.718281828459045 ** (total / seen)"},
}
_GIVES = twins_of(train_epoch, _WRONG_NUMBERS)


_SIZES = ((4, 4, 3), (5, 2), (3, 3, 3, 2), (2, 6), (4, 4))


def _case(at):
    """A model, batches and an optimiser. The first models come in eval mode, the others in train mode."""
    model = small_model().train(at > 2)
    return model, made_batches(_SIZES[at], seed=at + 1), sgd(model)


_WEIGHTS = weights_after(train_epoch, _case, len(_SIZES), _LEARNS, otherwise="weights")
_MEAN = over(train_epoch, _case, len(_SIZES), _GIVES, read=python_float, otherwise="wrong-mean")


def _check_train_epoch(answer: Callable[..., Any], judge: Judge) -> None:
    _WEIGHTS(answer, judge)
    _MEAN(answer, judge)


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
        **SAID,
        "piles-up": "The gradients of earlier batches are still in the sum when a step is taken: "
        "`backward()` adds to `.grad`, it does not replace it.",
        "one-step": "There is one step at the end of the pass. Each batch should have its own.",
        "not-train-mode": "The model was handed over in eval mode, and the loop left it there. A "
        "training loop asks for the mode it needs.",
        "calls-eval": "The loop itself puts the model into eval mode, also where it came in train mode. Training "
        "takes train mode for all batches.",
        "eval-mode": "A batch went through the model in eval mode. Training takes train mode for all of them.",
        "summed": "The steps follow the sum of the losses of a batch. The loop's loss was their mean.",
        "other-order": "The batches were taken from the last to the first. They come in the list's order.",
        "weights": "There is one step for each batch, but the weights are not those of a right loop over the "
        "batches in their order.",
        "ragged-mean": "The mean over batches is not the mean over digits when the last batch is "
        "smaller: weight each batch's loss by its number of digits.",
        "not-divided": "This is the sum of the losses of all digits. Divide by their number.",
        "by-batches": "The losses of all digits are added, but divided by the number of batches.",
        "not-weighted": "The sum of the batches' means was divided by the number of digits: first make each mean a sum.",
        "sum-of-means": "This is the sum of the batches' means, which nothing divides.",
        "all-as-the-first": "The divisor counts every batch as equally large. Count the digits that there are.",
        "last-batch": "This is the loss of the last batch only.",
        "last-size": "The sum is right, but it is divided by the size of the last batch only.",
        "after-step": "These losses were computed anew after each step. The mean of the losses that the steps "
        "used is asked for.",
        "exponential": "This is e to the mean loss. The mean loss itself is asked for.",
        "percent": "This is a hundred times the mean loss.",
        "wrong-mean": "The weights are right, but the number is not the mean loss of one digit over the pass.",
    },
)
