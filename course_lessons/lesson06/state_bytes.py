"""What a model holds before its first batch."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from course_utils.exercises import Exercise, Judge
from course_utils.exercises.edited import edited
from course_utils.exercises.forms import OverCases


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


def _models() -> Iterator[tuple[str, nn.Module]]:
    yield "a linear layer", nn.Linear(7, 3)
    yield (
        "a model with BatchNorm",
        nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)),
    )
    yield (
        "a model in two dtypes",
        nn.Sequential(nn.Linear(6, 6).half(), nn.Linear(6, 6), nn.LayerNorm(6)),
    )
    frozen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3).double())
    frozen[0].requires_grad_(False)
    yield "a model with a frozen layer", frozen
    tied = nn.ModuleDict({"words": nn.Embedding(11, 4), "head": nn.Linear(4, 11, bias=False)})
    tied["head"].weight = tied["words"].weight
    yield "a model with tied weights", tied
    masked = nn.Linear(3, 3)
    masked.register_buffer("mask", torch.ones(9, dtype=torch.bool), persistent=False)
    yield "a model with a buffer that is not saved", masked


def _cases() -> Iterator[tuple[nn.Module, int]]:
    for name, model in _models():
        model.called = name
        yield from ((model, states) for states in (2, 1, 0))


def _read(judge: Judge, got: Any) -> dict[str, float]:
    keys = ("parameters", "gradients", "optimizer", "buffers")
    if set(judge.is_a(got, dict, "a dict")) != set(keys):
        judge.no("other-keys", seen=list(got), expected=list(keys))
    return {key: judge.number(got[key]) for key in keys}


_EVERY = "p for _, p in model.named_parameters(remove_duplicate=False)"
_BOTH = "p for p in (*model.parameters(), *model.buffers())"
_TRAINED = "p for p in model.parameters() if p.requires_grad"
_EXISTING = "p.grad for p in model.parameters() if p.grad is not None"
_TWINS = {
    "elements": edited(state_bytes, {" * t.element_size()": ""}),
    "always-four": edited(state_bytes, {"t.element_size()": "4"}),
    "frozen": (
        edited(state_bytes, {" if p.requires_grad": ""}),
        edited(state_bytes, {"_parameter * trained": "_parameter * size(model.parameters())"}),
    ),
    "tied-twice": edited(
        state_bytes,
        {_TRAINED: f"{_EVERY} if p.requires_grad", "size(model.parameters())": f"size({_EVERY})"},
    ),
    "saved-buffers": edited(
        state_bytes,
        {"model.buffers()": "model.state_dict(keep_vars=True).values()) - size(" + _EVERY},
    ),
    "buffers-learn": edited(
        state_bytes,
        {
            _TRAINED: f"{_BOTH} if p.is_floating_point()",
            "size(model.parameters())": f"size({_BOTH})",
        },
    ),
    "no-gradient-yet": edited(
        state_bytes, {'"gradients": trained': f'"gradients": size({_EXISTING})'}
    ),
}


EXERCISE = Exercise(
    id="06.state_bytes",
    title="What a model holds before its first batch",
    level=1,
    minutes=10,
    task="""
Write `state_bytes(model, states_per_parameter)`: a dict of what training this model holds in memory apart
from activations, in bytes, under the keys `"parameters"`, `"gradients"`, `"optimizer"` and `"buffers"`.
No gradient need exist yet. The optimizer keeps `states_per_parameter` numbers (0 for plain SGD, 1 with
momentum, 2 for Adam) for each number it trains, in that number's dtype. A frozen parameter has neither a
gradient nor a state. Dtypes differ, and a weight that two layers share is there once.
""",
    hints=(
        "One number takes `t.element_size()` bytes, and a tensor holds `t.numel()` of them.",
        "`model.parameters()` and `model.buffers()` give every tensor once, also one that two "
        "layers share. `p.requires_grad` is False for a frozen parameter.",
        "A gradient has its parameter's shape and dtype. So gradients take the bytes of the trained "
        "parameters, and the optimizer takes `states_per_parameter` times as many.",
    ),
    reference=state_bytes,
    check_answer=OverCases(
        state_bytes,
        _cases,
        _TWINS,
        read=_read,
        alike=operator.eq,
        situation=lambda model, states: f"{model.called}, {states} states",
        shown=lambda sizes: ", ".join(f"{key} {size:,.0f}" for key, size in sizes.items()),
    ),
    why="This sum is the part of the memory that does not depend on the batch. For Adam in float32 it is "
    "four times the weights, and if it alone exceeds the card, no batch size helps.",
    diagnoses={
        "other-keys": "The dict has other keys than the four of the task.",
        "elements": "That is how many numbers there are, not how many bytes.",
        "always-four": "Not every tensor has four bytes a number: there are float16, float64, int64 and "
        "bool tensors here.",
        "frozen": "A frozen parameter gets no gradient, and the optimizer keeps nothing for it.",
        "tied-twice": "Two layers share one weight here, and memory holds it once.",
        "saved-buffers": "A buffer can be left out of `state_dict()` and is in memory all the same.",
        "buffers-learn": "Buffers are no parameters: they get no gradient and no optimizer state.",
        "no-gradient-yet": "No gradient exists yet: before the first backward, `p.grad` is None. Compute what "
        "the gradients *will* take.",
    },
)
