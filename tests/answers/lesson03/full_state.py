"""Known wrong answers to 03.full_state, by the diagnosis that each must get."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from course_lessons.lesson03.full_state import full_state


def _state_without(*left_out: str) -> Callable[..., Any]:
    def full_state(model, optimizer, scheduler):
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "python_rng": random.getstate(),
        }
        return {key: value for key, value in state.items() if key not in left_out}

    return full_state


def _state_of_parameters(model, optimizer, scheduler):
    state = full_state(model, optimizer, scheduler)
    return {**state, "model": dict(model.named_parameters())}


def _state_of_objects(model, optimizer, scheduler):
    return {
        **full_state(model, optimizer, scheduler),
        "model": model,
    }


def _state_after_seeding(model, optimizer, scheduler):
    torch.manual_seed(0)
    random.seed(0)
    return full_state(model, optimizer, scheduler)


def _state_with_seed(model, optimizer, scheduler):
    return {**full_state(model, optimizer, scheduler), "torch_rng": torch.initial_seed()}


WRONG = {
    "optimizer": _state_without("optimizer"),
    "scheduler": _state_without("scheduler"),
    "torch_rng": _state_with_seed,
    "python_rng": _state_without("python_rng"),
    "model": _state_of_parameters,
    "moved-generator": _state_after_seeding,
    "not-plain": _state_of_objects,
}
