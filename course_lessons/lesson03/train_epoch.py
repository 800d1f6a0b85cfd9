"""Three faults in one loop."""

from torch.nn import functional as F

from course_lessons.shared.checking import made_batches, small_model
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise

from .checking import over, python_float, sgd, weights_after


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


_LINE, _STEP = "loss = F.cross_entropy(model(x), y)", "optimizer.step()"
_MISTAKES_IN_WEIGHTS = known_mistakes_of(
    train_epoch,
    {
        "piles-up": {"optimizer.zero_grad()": ""},
        "step-first": {_LINE: f"{_STEP}\n{_LINE}", _STEP: ""},
        "softmax-twice": {"model(x), y": "model(x).softmax(1), y"},
        "not-train-mode": {"model.train()": ""},
    },
)
_MEAN_OF_MEANS = {"loss.item() * len(y)": "loss.item()", "total / seen": "total / len(batches)"}
_MISTAKES_IN_RESULT = known_mistakes_of(train_epoch, {"ragged-mean": _MEAN_OF_MEANS})
_SIZES = ((4, 4, 3), (5, 2), (3, 3, 3, 2), (2, 6), (4, 4))


def _make_case(i):
    """Return case number ``i``: a model, in eval mode for ``i`` up to 2, batches and an optimiser."""
    model = small_model().train(i > 2)
    return model, made_batches(_SIZES[i], seed=i + 1), sgd(model)


_compare_weights = weights_after(train_epoch, _make_case, len(_SIZES), _MISTAKES_IN_WEIGHTS)
_compare_mean = over(train_epoch, _make_case, len(_SIZES), _MISTAKES_IN_RESULT, read=python_float)


def _check_answer(answer, judge):
    """Check the weights, then the mean loss."""
    _compare_weights(answer, judge)
    _compare_mean(answer, judge)


EXERCISE = Exercise(
    id="03.train_epoch",
    title="Three faults in one loop",
    level=1,
    minutes=8,
    task="""
The loop below runs without an error and has three faults. Fix them. Your `train_epoch` trains the
model for one pass over `batches`, a list of `(x, y)`, with cross-entropy. It returns the mean loss
per digit, as a Python float. That's the sum of the losses of all digits, divided by the number of digits.
The last batch is smaller than the others. To read `loss.item()` in each step is slow, but it isn't one of the
three.
""",
    hints=(
        "Say the five parts of a training step aloud, in order, and find each in the loop. Which one "
        "is missing, and which one stands in the wrong place? Look at the returned number last.",
        "`backward()` adds to the gradients that are there already, so something has to clear them "
        "first. The optimiser can only use a gradient that `backward()` has made. As for the number, "
        "`cross_entropy` gives you the mean over one batch, and a batch of 3 digits mustn't count as "
        "much as a batch of 64.",
        "Here you see both effects, a sum of gradients and a mean of unequal groups.\n\n"
        """```python
weight = torch.tensor(1.0, requires_grad=True)
(3 * weight).backward()
(3 * weight).backward()
print(weight.grad)  # 6, because two calls add up
print((5.0 + 9.0) / 2)  # 7, if two groups count alike
print((5.0 * 3 + 9.0 * 1) / (3 + 1))  # 6, if 3 people paid 5 and one paid 9
```""",
    ),
    reference=train_epoch,
    check_answer=_check_answer,
    why="None of the three faults raises an error, and the loss still falls, only to a worse place, "
    "while the number that you print isn't what you think it is. That's why you should check a "
    "training loop by what it does.",
    diagnoses={
        "step-first": "In each round the optimiser steps before `backward()`, and the gradient of this batch "
        "isn't there yet.",
        "softmax-twice": "There is a softmax before the loss, and `cross_entropy` makes one itself: give "
        "it the logits.",
        "piles-up": "The gradients of earlier batches are still in the sum when a step is taken: "
        "`backward()` adds to `.grad`, it does not replace it.",
        "not-train-mode": "The model was handed over in eval mode, and the loop left it there. A "
        "training loop asks for the mode it needs.",
        "ragged-mean": "The mean over batches is not the mean over digits when the last batch is "
        "smaller: weight each batch's loss by its number of digits.",
    },
)
