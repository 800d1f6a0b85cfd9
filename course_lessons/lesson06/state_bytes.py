"""What a model holds before its first batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course_utils.exercises import Exercise, Judge


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


def _check_state_bytes(answer: Callable[..., Any], judge: Judge) -> None:
    for name, model in _models():
        for states in (2, 1, 0):
            right = state_bytes(model, states)
            got = judge.is_a(answer(model, states), dict, "a dict")
            if set(got) != set(right):
                judge.no("other-keys", seen=list(got), expected=list(right))
            found = {key: judge.number(got[key]) for key in right}
            if found == right:
                continue
            like = [twin for twin, f in _STATE_TWINS if f(model, states) == found]
            off = [key for key in right if found[key] != right[key]]
            judge.no(
                like[0] if like else "wrong-value",
                seen=f"{off[0]} {found[off[0]]:,.0f} bytes for {name}, {states} states",
                expected=f"{right[off[0]]:,} bytes",
            )


def _state_of(
    size: Callable[[Tensor], int] = lambda t: t.nbytes,
    parameters: Callable[[nn.Module], list[Tensor]] = lambda m: list(m.parameters()),
    trained: Callable[[Tensor], bool] = lambda p: p.requires_grad,
    buffers: Callable[[nn.Module], list[Tensor]] = lambda m: list(m.buffers()),
) -> Callable[..., Any]:
    def state_bytes(model, states_per_parameter):
        learning = sum(size(p) for p in parameters(model) if trained(p))
        return {
            "parameters": sum(size(p) for p in parameters(model)),
            "gradients": learning,
            "optimizer": states_per_parameter * learning,
            "buffers": sum(size(b) for b in buffers(model)),
        }

    return state_bytes


def state_without_dtype(model, states_per_parameter):
    return _state_of(size=lambda t: 4 * t.numel())(model, states_per_parameter)


def state_in_elements(model, states_per_parameter):
    return _state_of(size=lambda t: t.numel())(model, states_per_parameter)


def state_of_frozen(model, states_per_parameter):
    return _state_of(trained=lambda p: True)(model, states_per_parameter)


def _state_optimizer_of_frozen(model, states_per_parameter):
    right = state_bytes(model, states_per_parameter)
    return {**right, "optimizer": states_per_parameter * right["parameters"]}


def state_tied_twice(model, states_per_parameter):
    def every(m):
        return [p for _, p in m.named_parameters(remove_duplicate=False)]

    return _state_of(parameters=every)(model, states_per_parameter)


def state_saved_buffers(model, states_per_parameter):
    def saved(m):
        parameters = dict(m.named_parameters(remove_duplicate=False))
        return [value for name, value in m.state_dict().items() if name not in parameters]

    return _state_of(buffers=saved)(model, states_per_parameter)


def state_existing_gradients(model, states_per_parameter):
    existing = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
    return {**state_bytes(model, states_per_parameter), "gradients": existing}


def state_buffers_learn(model, states_per_parameter):
    def all_of_it(m):
        return [*m.parameters(), *m.buffers()]

    right = state_bytes(model, states_per_parameter)
    everything = _state_of(parameters=all_of_it, trained=lambda t: t.is_floating_point())
    return {**everything(model, states_per_parameter), "buffers": right["buffers"]}


_STATE_TWINS = (
    ("elements", state_in_elements),
    ("always-four", state_without_dtype),
    ("frozen", state_of_frozen),
    ("frozen", _state_optimizer_of_frozen),
    ("tied-twice", state_tied_twice),
    ("saved-buffers", state_saved_buffers),
    ("buffers-learn", state_buffers_learn),
    ("no-gradient-yet", state_existing_gradients),
)


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
    check_answer=_check_state_bytes,
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
