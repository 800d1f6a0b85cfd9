"""Accumulation with a ragged end."""

from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import made_batches, small_model
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise

from .checking import sgd, weights_after


def train_accumulated(model, batches, optimizer, k):
    for first in range(0, len(batches), k):
        group = batches[first : first + k]
        count = sum(len(y) for _, y in group)
        optimizer.zero_grad()
        for x, y in group:
            loss = F.cross_entropy(model(x), y, reduction="sum") / count
            loss.backward()
        optimizer.step()


_ZERO, _GROUPS = "optimizer.zero_grad()", "range(0, len(batches), k)"
_FULL_GROUPS = {_GROUPS: "range(0, len(batches) // k * k, k)"}
_PART = 'F.cross_entropy(model(x), y, reduction="sum") / count'
_BY_K = "F.cross_entropy(model(x), y) / k"

_MISTAKES = known_mistakes_of(
    train_accumulated,
    {
        "by-k": {_PART: _BY_K},
        "by-batches": {_PART: "F.cross_entropy(model(x), y) / len(group)"},
        "last-only": tuple(
            {_ZERO: "", f"loss = {_PART}": f"{_ZERO}\nloss = {part}"} for part in (_PART, _BY_K)
        ),
        "tail-dropped": (_FULL_GROUPS, {**_FULL_GROUPS, _PART: _BY_K}),
    },
)
_SIZES = (
    ((4, 4, 4, 1, 3), 2),
    ((4, 4, 4, 4), 2),
    ((3, 2), 1),
    ((5, 2), 3),
    ((6, 2, 5, 1, 3, 4), 3),
    ((2, 7, 3, 5, 6), 4),
)


def _make_case(i):
    """Return case number ``i``: a model, batches, an optimiser and ``k``."""
    sizes, k = _SIZES[i]
    model = small_model(norm=False)
    return model, made_batches(sizes, seed=i + 1), sgd(model), k


_compare_to_reference = weights_after(train_accumulated, _make_case, len(_SIZES), _MISTAKES)


def _check_answer(answer, judge):
    """Check how many rows and how many graphs are in memory at once, then the weights."""
    for model, batches, optimizer, k in map(_make_case, range(len(_SIZES))):
        largest = max(len(y) for _, y in batches)
        graphs = _GraphCounter(model)
        answer(model, batches, optimizer, k)
        if graphs.largest > largest:
            seen = _("a batch of {largest} went through the model").format(largest=graphs.largest)
            judge.no(seen=seen, expected=_("at most {largest} at a time").format(largest=largest))
        if graphs.most > 1:
            judge.no(
                "all-graphs",
                seen=_("{most} graphs at once").format(most=graphs.most),
                expected=_("one at a time"),
            )
    _compare_to_reference(answer, judge)


class _GraphCounter:
    """Records a model's largest batch, and the most forward passes with a graph since a backward pass."""

    def __init__(self, model):
        self.now = self.most = self.largest = 0
        model.register_forward_hook(self._forward)
        model[0].weight.register_hook(self._backward)

    def _forward(self, _, args, out):
        """Count a forward pass (a forward hook)."""
        self.largest = max(self.largest, len(args[0]))
        self.now += out.requires_grad
        self.most = max(self.most, self.now)

    def _backward(self, _):
        """Reset the count (a hook of the first weight's gradient)."""
        self.now = 0


EXERCISE = Exercise(
    id="03.train_accumulated",
    title="Accumulation with a ragged end",
    level=3,
    minutes=12,
    task="""
Write `train_accumulated(model, batches, optimizer, k)`. Every `k` batches of the list make **one**
optimiser step. Each step uses the gradient of the mean loss over all digits of its `k` batches, as if they
had come as one large batch. Only one batch's graph is in memory at a time. The last batch can be
smaller, and the last group can have fewer than `k` batches. Call `step()` for that group, too. The model
comes in train mode.
""",
    hints=(
        "Write down the groups for five batches and k = 2. How many optimiser steps should there be? "
        "Now imagine that the last batch holds a single digit. How much should this digit count?",
        "A slice such as `batches[4 : 4 + k]` is one group, and Python shortens the last one by "
        "itself. You can count a group's digits before its first forward pass. So let `cross_entropy` "
        "sum the losses of each batch, and divide by that count and not by k. `backward()` adds to "
        "`.grad` and frees the graph, so call it for each batch at once.",
        "Here five rows come in pieces of 2, 2 and 1, and the gradient is that of the mean over all "
        "five.\n\n"
        """```python
w = torch.tensor(1.0, requires_grad=True)
rows = torch.tensor([1.0, 2.0, 6.0, 3.0, 8.0])
for piece in rows.split(2):
    ((w * piece).sum() / len(rows)).backward()
print(w.grad, rows.mean())  # 4 and 4
print(sum(piece.mean() for piece in rows.split(2)) / 3)  # 4.67
```""",
    ),
    reference=train_accumulated,
    check_answer=_check_answer,
    why="Many loops divide by k and drop the tail. Nothing fails then, but the small last batch "
    "counts too much, and the last digits of each epoch are never learned from.",
    diagnoses={
        "all-graphs": "The graphs of several batches were alive at once, and all their activations "
        "with them: as much memory as the large batch takes.",
        "by-k": "A mean was divided by k. That is right only where a group has k batches of one size.",
        "by-batches": "The mean of each batch counts alike, so a digit in a small batch weighs more than one "
        "in a large.",
        "last-only": "The gradients are cleared before each batch, so a step follows the group's last batch "
        "only.",
        "tail-dropped": "The batches after the last full group never got a step.",
    },
)
