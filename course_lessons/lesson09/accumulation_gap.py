"""Prove that it is equal."""

import copy
from numbers import Real

import torch
from torch import nn
from torch.nn import functional as F

from course_language import _
from course_lessons.shared.checking import one_thread
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference
from course_utils.exercises.values import nearly


def accumulation_gap(model, loss_fn, x, y, size):
    def gradient(parts):
        twin = copy.deepcopy(model)
        for rows, labels in parts:
            loss = loss_fn(twin(rows), labels) * len(rows) / len(x)
            loss.backward()
        return torch.cat([p.grad.flatten() for p in twin.parameters()])

    whole = gradient([(x, y)])
    parts = gradient(zip(x.split(size), y.split(size), strict=True))
    return ((parts - whole).norm() / whole.norm()).item()


def _mode_in_words(module):
    """Return the module's mode, train or eval, in words."""
    return _("train mode") if module.training else _("eval mode")


def _make_case(norm, rows, size, training=True):
    """Return new arguments; ``model.modes`` collects the modes of the copies' forward passes.

    The model has gradients from before.
    """
    torch.manual_seed(rows)
    bias = norm is not nn.BatchNorm1d  # before that its gradient is noise about 0, and has no gap
    layers = [nn.Linear(6, 8, bias), *([norm(8)] if norm else []), nn.ReLU(), nn.Linear(8, 3)]
    model = nn.Sequential(*layers).double().train(training)
    model.modes = set()
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.5)
    for module in model.modules():  # its copies have the hook too
        module.register_forward_pre_hook(lambda module, _: model.modes.add(_mode_in_words(module)))
    x = 3 * torch.randn(rows, 6, dtype=torch.float64)
    return model, F.cross_entropy, x, torch.randint(0, 3, (rows,)), size


def _compared_value(gap, model, *_):
    """Return what is compared: the gap, and the model's state after the call."""
    return {
        "gap": gap,
        "forward passes": sorted(model.modes),
        "modes afterwards": [_mode_in_words(module) for module in model.modules()],
        "gradients afterwards": [p.grad for p in model.parameters()],
        "weights and statistics afterwards": [*model.parameters(), *model.buffers()],
    }


def _describe_case(model, loss_fn, x, y, size):
    """Return the case in words."""
    layers = ", ".join(type(layer).__name__ for layer in model)
    return _("{count} rows in parts of {size}, layers {layers}, {mode}").format(
        count=len(x), size=size, layers=layers, mode=_mode_in_words(model)
    )


_PARTS = "zip(x.split(size), y.split(size), strict=True)"
_SHARE = "len(rows) / len(x)"
MISTAKES = {
    "by-parts": {_SHARE: "(len(rows) == len(x) or 1 / len(x.split(size)))"},
    "sum-of-means": {f" * {_SHARE}": ""},
    "drops-tail": {_PARTS: f"[p for p in {_PARTS} if len(p[0]) in (size, len(x))]"},
    "piles-up": {"parts = gradient(": "parts = whole + gradient("},
    "with-itself": {"(parts - whole)": "(whole - whole)"},
}
_compare_to_reference = ComparesToReference(
    accumulation_gap,
    lambda: [
        _make_case(None, 16, 4),
        _make_case(None, 13, 4),  # a ragged tail
        _make_case(nn.LayerNorm, 11, 4),
        _make_case(nn.BatchNorm1d, 12, 4),
        _make_case(nn.BatchNorm1d, 14, 6),
        _make_case(nn.BatchNorm1d, 11, 3, training=False),
        _make_case(None, 5, 8),  # one part
    ],
    known_mistakes_of(accumulation_gap, MISTAKES),
    read=lambda judge, got: judge.number(judge.is_a(got, Real, _("a Python number"))),
    look=_compared_value,
    alike=nearly(1e-3, 1e-9),
    situation=_describe_case,
)


EXERCISE = Exercise(
    id="09.accumulation_gap",
    title="Prove that it is equal",
    level=2,
    minutes=12,
    task="""
Write `accumulation_gap(model, loss_fn, x, y, size)`: how far the gradient accumulated over parts of `size`
rows (the last may be smaller) is from that of the whole batch. Take all gradients as one long vector, and
return the norm of the difference over the norm of the whole batch's gradient, a Python number. `loss_fn` is a
mean over its rows. Keep to the mode that the model is in, and leave its mode, its gradients and a BatchNorm's
running statistics as they are.
""",
    hints=(
        "In train mode, even one forward pass leaves traces in a model, because BatchNorm updates its "
        "running statistics, and `backward()` adds to the gradients that are there. How can you compute two "
        "gradients and leave `model` untouched?",
        "`copy.deepcopy(model)` has the same weights and the same mode, but no gradients. Make one copy for "
        "each of the two gradients. `loss_fn` returns a mean, so ask yourself how much a part with fewer "
        "rows should count.",
        """Here you see how unequal groups make one mean, and how `torch.cat` makes one vector from tensors
of different shapes.

```python
marks = torch.tensor([1.0, 2.0, 3.0, 8.0, 10.0])
groups = marks.split(3)  # the last group has two marks
print(sum(g.mean() for g in groups) / len(groups))  # 5.5, but marks.mean() is 4.8
print(sum(g.mean() * len(g) for g in groups) / len(marks))  # 4.8
tables = [torch.ones(2, 3), torch.zeros(4)]
print(torch.cat([table.flatten() for table in tables]))  # 10 numbers
```""",
    ),
    reference=accumulation_gap,
    check_answer=one_thread()(_compare_to_reference),
    why="Now you have a number instead of a belief: there's only rounding where accumulation is exact, and a "
    "visible gap where it isn't. Run this test on your own model before you rely on accumulation.",
    diagnoses={
        "by-parts": "Each part got the same weight. A smaller last part must count for less.",
        "sum-of-means": "The parts' means were added up and not weighted by their share of the rows.",
        "drops-tail": "The last, smaller part was left out.",
        "piles-up": "The gradient of the whole batch is still in the sum of the parts.",
        "with-itself": "Your gap is always 0: a gradient was compared with itself.",
    },
)
