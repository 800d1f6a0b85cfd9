"""What a model holds before its first batch."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from course_lessons.shared.edited import twins_of
from course_utils.exercises import Exercise, Judge
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
    both = nn.Sequential(
        nn.Linear(2, 5), nn.BatchNorm1d(5), nn.Linear(5, 1).double(), nn.BatchNorm1d(5)
    )
    both[3].running_mean = both[1].running_mean
    yield "a model with a shared buffer", both
    nested = nn.Sequential(
        nn.Sequential(nn.Linear(3, 2).half(), nn.BatchNorm1d(2)), nn.Linear(2, 2)
    )
    nested[0][0].bias.requires_grad_(False)
    yield "a model within a model", nested


def _cases() -> Iterator[tuple[nn.Module, int]]:
    for name, model in _models():
        model.called = name
        yield from ((model, states) for states in (2, 1, 0))


def _read(judge: Judge, got: Any) -> dict[str, float]:
    keys = ("parameters", "gradients", "optimizer", "buffers")
    judge.is_a(got, dict, "a dict")
    if set(got) != set(keys):
        judge.no("other-keys", seen=list(got), expected=list(keys))
    return {key: judge.number(got[key]) for key in keys}


_EVERY = "p for _, p in model.named_parameters(remove_duplicate=False)"
_BOTH = "p for p in (*model.parameters(), *model.buffers())"
_TRAINED = "p for p in model.parameters() if p.requires_grad"
_GRADIENTS = '"gradients": trained'
_EXISTING = "p.grad for p in model.parameters() if p.grad is not None"
_NUMBERS = "sum(p.numel() for p in model.parameters() if p.requires_grad)"
_TWINS = {
    "elements": {" * t.element_size()": ""},
    "always-four": (
        {"t.element_size()": "4"},
        {"size(model.buffers())": "4 * sum(b.numel() for b in model.buffers())"},
        {"_parameter * trained": "_parameter * 4 * " + _NUMBERS},
        {"t.element_size()": "next(model.parameters()).element_size()"},
    ),
    "first-dimension": {"t.numel()": "(len(t) if t.dim() else 1)"},
    "state-numbers": {"_parameter * trained": "_parameter * " + _NUMBERS},
    "always-adam": {"states_per_parameter * trained": "2 * trained"},
    "one-too-many": {"_parameter * trained": "_parameter * trained + trained"},
    "trained-only": {"size(model.parameters())": "trained"},
    "not-within": (
        {
            "size(model.parameters())": "size(model.parameters(recurse=False))",
            "for p in model.parameters()": "for p in model.parameters(recurse=False)",
            "model.buffers()": "model.buffers(recurse=False)",
        },
    ),
    "own-buffers": {"model.buffers()": "model.buffers(recurse=False)"},
    "no-buffers": {"size(model.buffers())": "0"},
    "float-buffers": {"model.buffers()": "b for b in model.buffers() if b.is_floating_point()"},
    "buffers-in-both": {"size(model.parameters())": f"size({_BOTH})"},
    "not-bytes": (
        {"for t in tensors)": "for t in tensors) / 2**20"},
        {"for t in tensors)": "for t in tensors) / 1e6"},
        {"for t in tensors)": "for t in tensors) // 1024"},
        {"for t in tensors)": "for t in tensors) * 8"},
    ),
    "frozen": (
        {" if p.requires_grad": ""},
        {"_parameter * trained": "_parameter * size(model.parameters())"},
        {_GRADIENTS: '"gradients": size(model.parameters())'},
    ),
    "tied-twice": (
        {_TRAINED: f"{_EVERY} if p.requires_grad", "size(model.parameters())": f"size({_EVERY})"},
        {"size(model.parameters())": f"size({_EVERY})"},
        {"model.buffers()": "b for _, b in model.named_buffers(remove_duplicate=False)"},
    ),
    "saved-buffers": {
        "model.buffers()": "model.state_dict(keep_vars=True).values()) - size(" + _EVERY
    },
    "buffers-learn": {
        _TRAINED: f"{_BOTH} if p.is_floating_point()",
        "size(model.parameters())": f"size({_BOTH})",
    },
    "no-gradient-yet": (
        {_GRADIENTS: f'"gradients": size({_EXISTING})'},
        {_TRAINED: _EXISTING},
    ),
}


EXERCISE = Exercise(
    id="06.state_bytes",
    title="What a model holds before its first batch",
    level=1,
    minutes=10,
    task="""
Write `state_bytes(model, states_per_parameter)`: a dict of the bytes that training this model takes apart
from activations, under the keys `"parameters"`, `"gradients"`, `"optimizer"` and `"buffers"`. No gradient
need exist yet. The optimizer keeps `states_per_parameter` numbers (0 for plain SGD, 1 with momentum, 2 for
Adam) for each trained number, in its dtype. A frozen parameter has neither a gradient nor a state. Dtypes
differ, and a tensor that two layers share counts once.
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
        twins_of(state_bytes, _TWINS),
        read=_read,
        alike=operator.eq,
        otherwise=lambda got, right, *_: next(key for key in right if got[key] != right[key]),
        situation=lambda model, states: f"{model.called}, {states} states",
        shown=lambda sizes: ", ".join(
            f"{key} {size:,.0f}" if size == int(size) else f"{key} {size:.4g}"
            for key, size in sizes.items()
        ),
    ),
    why="This sum is the part of the memory that does not depend on the batch. For Adam in float32 it is "
    "four times the weights, and if it alone exceeds the card, no batch size helps.",
    diagnoses={
        "other-keys": "The dict has other keys than the four of the task.",
        "elements": "That is how many numbers there are, not how many bytes.",
        "always-four": "Not every tensor has four bytes a number: there are float16, float64, int64 and "
        "bool tensors here.",
        "frozen": "A frozen parameter gets no gradient, and the optimizer keeps nothing for it.",
        "tied-twice": "Two layers share one tensor here, and memory holds it once.",
        "saved-buffers": "A buffer can be left out of `state_dict()` and is in memory all the same.",
        "buffers-learn": "Buffers are no parameters: they get no gradient and no optimizer state.",
        "first-dimension": "`len` of a tensor is its first dimension, and not how many numbers it holds.",
        "state-numbers": "The optimizer's figure is in numbers, not in bytes.",
        "always-adam": "The optimizer's figure does not depend on `states_per_parameter`.",
        "one-too-many": "The optimizer's figure is that of one number more for each number it trains. (The gradients have a line of their own.)",
        "trained-only": "A frozen parameter is in memory too, and counts among the parameters.",
        "not-within": "Only what the model itself holds is counted, not what its layers hold.",
        "own-buffers": "Only the buffers that the model itself holds are counted, not those of its layers.",
        "no-buffers": "The buffers are left out.",
        "float-buffers": "Only floating-point buffers are counted. Whole numbers take memory too.",
        "buffers-in-both": "The buffers are counted among the parameters as well.",
        "not-bytes": "That is not in bytes.",
        "parameters": "The parameters' figure is not right.",
        "gradients": "The gradients' figure is not right. The parameters' is.",
        "optimizer": "The optimizer's figure is not right. Parameters and gradients are.",
        "buffers": "The buffers' figure is not right. All others are.",
        "no-gradient-yet": "No gradient exists yet: before the first backward, `p.grad` is None. Compute what "
        "the gradients **will** take.",
    },
)
