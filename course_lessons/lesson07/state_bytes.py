"""What a model holds before its first batch."""

import operator

import torch
from torch import nn

from course_language import _
from course_lessons.shared.edited import known_mistakes_of
from course_utils.exercises import Exercise
from course_utils.exercises.forms import ComparesToReference


def state_bytes(model, states_per_parameter):
    def size(tensors):
        return sum(t.numel() * t.element_size() for t in tensors)

    trained = size(p for p in model.parameters() if p.requires_grad)
    return {
        "parameters": size(model.parameters()),
        "gradients": trained,
        "optimizer": states_per_parameter * trained,
        "buffers": size(model.buffers()),
    }


def _make_cases():
    """Yield new ``(model, states_per_parameter)`` cases; ``model.called`` is its name for the learner."""
    tied = nn.ModuleDict({"words": nn.Embedding(11, 4), "head": nn.Linear(4, 11, bias=False)})
    tied["head"].weight = tied["words"].weight
    masked = nn.Linear(3, 3)
    masked.register_buffer("mask", torch.ones(9, dtype=torch.bool), persistent=False)
    norm, shared = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
    shared.running_mean = norm.running_mean
    inner = nn.Sequential(nn.Linear(3, 2).half(), nn.BatchNorm1d(2))
    inner[0].bias.requires_grad_(False)
    models = {
        "a linear layer": [nn.Linear(7, 3)],
        "a model with BatchNorm": [nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)],
        "a model in two dtypes": [nn.Linear(6, 6).half(), nn.Linear(6, 6), nn.LayerNorm(6)],
        "a model with a frozen layer": [
            nn.Linear(8, 8).requires_grad_(False),
            nn.Linear(8, 3).double(),
        ],
        "a model with tied weights": [tied],
        "a model with a buffer that is not saved": [masked],
        "a model with a shared buffer": [nn.Linear(2, 5), norm, nn.Linear(5, 1).double(), shared],
        "a model within a model": [inner, nn.Linear(2, 2)],
    }
    for name, parts in models.items():
        model = nn.Sequential(*parts)
        model.called = name
        yield from ((model, states) for states in (2, 1, 0))


def _validated_result(judge, got):
    """Return the four numbers by key, or refuse the result."""
    keys = ("parameters", "gradients", "optimizer", "buffers")
    judge.is_a(got, dict, _("a dict"))
    if set(got) != set(keys):
        judge.no(seen=list(got), expected=list(keys))
    return {key: judge.number(got[key]) for key in keys}


_EVERY = "p for _, p in model.named_parameters(remove_duplicate=False)"
_TRAINED = "p for p in model.parameters() if p.requires_grad"
_MISTAKES = {
    "elements": {" * t.element_size()": ""},
    "always-four": (
        {"t.element_size()": "4"},
        {"t.element_size()": "next(model.parameters()).element_size()"},
    ),
    "no-buffers": {"size(model.buffers())": "0"},
    "frozen": (
        {" if p.requires_grad": ""},
        {"_parameter * trained": "_parameter * size(model.parameters())"},
    ),
    "tied-twice": (
        {_TRAINED: f"{_EVERY} if p.requires_grad", "size(model.parameters())": f"size({_EVERY})"},
        {"model.buffers()": "b for _, b in model.named_buffers(remove_duplicate=False)"},
    ),
}


EXERCISE = Exercise(
    id="07.state_bytes",
    title="What a model holds before its first batch",
    level=1,
    minutes=10,
    task="""
Write `state_bytes(model, states_per_parameter)`: a dict of the bytes that training this model takes apart
from activations, under the keys `"parameters"`, `"gradients"`, `"optimizer"` and `"buffers"`. A
gradient may still be `None`, so compute from the parameters. The optimizer keeps `states_per_parameter`
numbers (0 for plain SGD, 1 with momentum, 2 for Adam) for each trained number, in its dtype. A frozen
parameter has neither a gradient nor a state. Dtypes differ, and a tensor that two layers share counts once.
""",
    hints=(
        "Begin with one tensor. It holds `t.numel()` numbers, and each of them takes `t.element_size()` "
        "bytes. Then ask for each of the four keys which tensors belong to it.",
        "`model.parameters()` and `model.buffers()` give you every tensor once, even if two layers share "
        "it. A gradient doesn't have to exist for you to know its size, because it has the shape and the "
        "dtype of its parameter. The optimizer keeps its numbers for the same parameters that get a "
        "gradient. Which ones are they, if `p.requires_grad` is False for a frozen one?",
        "Here the bytes of a batch are added up, all of them first, and then the floating-point tensors "
        "alone:\n\n"
        """```python
image, label = torch.zeros(2, 3, 4), torch.zeros(2, dtype=torch.int64)
batch = [image, label]
every = sum(t.numel() * t.element_size() for t in batch)
floats = sum(t.numel() * t.element_size() for t in batch if t.is_floating_point())
print(every, floats)  # 112 96
```""",
    ),
    reference=state_bytes,
    check_answer=ComparesToReference(
        state_bytes,
        _make_cases,
        known_mistakes_of(state_bytes, _MISTAKES),
        read=_validated_result,
        alike=operator.eq,
        situation=lambda model, states: _("{called}, {states} states").format(
            called=model.called, states=states
        ),
        shown=lambda sizes: ", ".join(
            f"{key} {size:,.0f}" if size == int(size) else f"{key} {size:.4g}" for key, size in sizes.items()
        ),
    ),
    why="This sum is the part of the memory that does not depend on the batch. For Adam in float32 it is "
    "four times the weights, and if it alone exceeds the card, no batch size helps.",
    diagnoses={
        "elements": "That is how many numbers there are, not how many bytes.",
        "always-four": "Not every tensor has four bytes a number: there are float16, float64, int64 and "
        "bool tensors here.",
        "frozen": "A frozen parameter gets no gradient, and the optimizer keeps nothing for it.",
        "tied-twice": "Two layers share one tensor here, and memory holds it once.",
        "no-buffers": "The buffers are left out.",
    },
)
