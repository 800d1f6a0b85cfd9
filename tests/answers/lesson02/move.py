"""Known wrong answers to 02.move, by the diagnosis that each must get."""

from __future__ import annotations

import copy

import torch

from course_lessons.lesson02.move import Sample, move


def _move_one_level(batch, device):
    def place(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if isinstance(batch, dict):
        return {key: place(value) for key, value in batch.items()}
    if isinstance(batch, Sample):
        return Sample(*map(place, batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(map(place, batch))
    return place(batch)


def _move_any_tuple(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_any_tuple(value, device) for key, value in batch.items()}
    if isinstance(batch, list):
        return [_move_any_tuple(value, device) for value in batch]
    if isinstance(batch, tuple):
        return tuple(_move_any_tuple(value, device) for value in batch)
    return batch


def _move_to_lists(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_to_lists(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [_move_to_lists(value, device) for value in batch]
    return batch


def _move_strings_too(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_strings_too(value, device) for key, value in batch.items()}
    if hasattr(batch, "_fields"):
        return type(batch)(*(_move_strings_too(value, device) for value in batch))
    if hasattr(batch, "__iter__"):
        kind = type(batch) if isinstance(batch, tuple) else list
        return kind(
            value if len(batch) == 1 else _move_strings_too(value, device) for value in batch
        )
    return batch


def _move_like_a_tuple(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _move_like_a_tuple(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)([_move_like_a_tuple(value, device) for value in batch])
    return batch


def _move_unassigned(batch, device):
    if isinstance(batch, torch.Tensor):
        batch.to(device)
    return batch


def _move_plain_tuples(batch, device):
    if type(batch) in (list, tuple):
        return type(batch)(_move_plain_tuples(value, device) for value in batch)
    if isinstance(batch, dict):
        return {key: _move_plain_tuples(value, device) for key, value in batch.items()}
    return batch.to(device) if isinstance(batch, torch.Tensor) else batch


def _move_copies(batch, device):
    return move(copy.deepcopy(batch), device)


def _move_in_place(batch, device):
    if isinstance(batch, dict):
        for key in batch:
            batch[key] = _move_in_place(batch[key], device)
        return batch
    return move(batch, device)


WRONG = {
    "stays": _move_unassigned,
    "one-level": _move_one_level,
    "namedtuple": _move_any_tuple,
    "not-entered": _move_plain_tuples,
    "copied": _move_copies,
    "other-container": _move_to_lists,
    "strings": _move_strings_too,
    "one-by-one": _move_like_a_tuple,
    "changed-input": _move_in_place,
}
