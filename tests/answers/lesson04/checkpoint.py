"""Known wrong answers to 04.checkpoint, by the diagnosis that each must get."""

from __future__ import annotations

from course_lessons.lesson04.checkpoint import checkpoint


def _checkpoint_without_scaler(model, optimizer, scaler):
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def _checkpoint_scale_only(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "scaler": scaler.get_scale()}


def _checkpoint_none(model, optimizer, scaler):
    state = checkpoint(model, optimizer, scaler)
    return {**state, "scaler": state["scaler"] or None}


def _checkpoint_whole_scaler(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "scaler": scaler}


def _checkpoint_of_parameters(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "model": dict(model.named_parameters())}


def _checkpoint_half(model, optimizer, scaler):
    halves = {name: value.half() for name, value in model.state_dict().items()}
    return {**checkpoint(model, optimizer, scaler), "model": halves}


def _checkpoint_without_optimizer(model, optimizer, scaler):
    return {**checkpoint(model, optimizer, scaler), "optimizer": {}}


WRONG = {
    "no-scaler": _checkpoint_without_scaler,
    "scale-only": _checkpoint_scale_only,
    "none-for-disabled": _checkpoint_none,
    "not-plain": _checkpoint_whole_scaler,
    "model": _checkpoint_of_parameters,
    "half": _checkpoint_half,
    "optimizer": _checkpoint_without_optimizer,
}
