"""Known wrong answers to 05.average_gradients, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson05.average_gradients import average_gradients
from course_utils.exercises.edited import edited


def _average_skipping_none(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def _average_not_kept(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            dist.all_reduce(grad)
            grad /= dist.get_world_size()


def _average_summed(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)


def _average_by_two(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= 2


def _average_of_users(model, dist):
    for parameter in model.parameters():
        if parameter.requires_grad:
            users = torch.tensor(float(parameter.grad is not None))
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            dist.all_reduce(users)
            parameter.grad /= users


def _average_called_by_one(model, dist):
    if dist.get_rank() == 0:
        average_gradients(model, dist)


def _average_copies(model, dist):
    for parameter in model.parameters():
        if parameter.grad is not None:
            mean = parameter.grad.clone()
            dist.all_reduce(mean)
            mean /= dist.get_world_size()


def _average_parameters(model, dist):
    for parameter in model.parameters():
        dist.all_reduce(parameter.data)
        parameter.data /= dist.get_world_size() + 1


def _average_all(model, dist):
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


WRONG = {
    "one-rank": _average_called_by_one,
    "none-skipped": _average_skipping_none,
    "not-kept": _average_not_kept,
    "not-divided": _average_summed,
    "other-count": _average_by_two,
    "own": _average_copies,
    "own-divided": edited(average_gradients, {"(parameter.grad)": "(parameter.grad.clone())"}),
    "users-only": _average_of_users,
    "parameters": _average_parameters,
    "frozen": _average_all,
}
