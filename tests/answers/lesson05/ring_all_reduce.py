"""Known wrong answers to 05.ring_all_reduce, by the diagnosis that each must get."""

from __future__ import annotations

import torch

from course_lessons.lesson05.ring_all_reduce import ring_all_reduce
from course_utils.exercises.edited import edited


def _ring_sends_first(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        dist.send(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        part.copy_(part + received if step < n - 1 else received)


def _ring_by_rank_0(x, dist):
    others = range(1, dist.get_world_size())
    if dist.get_rank():
        dist.send(x, 0)
        dist.recv(x, 0)
        return
    received = torch.empty_like(x)
    for other in others:
        dist.recv(received, other)
        x += received
    for other in others:
        dist.send(x, other)


def _ring_of_whole_tensors(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    passed = x.clone()
    for _ in range(n - 1):
        received = torch.empty_like(x)
        sending = dist.isend(passed, (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        sending.wait()
        passed = received
        x += received


def _ring_without_wait(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        dist.isend(parts[(rank - step) % n], (rank + 1) % n)
        dist.recv(received, (rank - 1) % n)
        part.copy_(part + received if step < n - 1 else received)


_ring_half_way = edited(
    ring_all_reduce,
    {
        "for step in range(2 * (n - 1))": "for step in range(n - 1)",
        (
            "if step < n - 1:\n    part += received\nelse:\n    part.copy_(received)"
        ): "part += received",
    },
)


def _ring_rounding_down(x, dist):
    n = dist.get_world_size()
    ring_all_reduce(x.view(-1)[: x.numel() // n * n], dist)


def _ring_by_collective(x, dist):
    dist.all_reduce(x)


def _ring_of_a_copy(x, dist):
    ring_all_reduce(x.clone(), dist)


def _ring_averaging(x, dist):
    ring_all_reduce(x, dist)
    x.copy_(x / dist.get_world_size())


def _ring_to_the_last(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    if rank:
        received = torch.empty_like(x)
        dist.recv(received, rank - 1)
        x += received
    if rank < n - 1:
        dist.send(x, rank + 1)


def _ring_taking_turns(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        if rank % 2:
            dist.recv(received, (rank - 1) % n)
        dist.send(parts[(rank - step) % n], (rank + 1) % n)
        if not rank % 2:
            dist.recv(received, (rank - 1) % n)
        part.copy_(part + received if step < n - 1 else received)


WRONG = {
    "deadlock": _ring_sends_first,
    "one-rank": _ring_by_rank_0,
    "whole-tensors": _ring_of_whole_tensors,
    "too-many-steps": _ring_taking_turns,
    "half-way": _ring_half_way,
    "too-much": edited(
        ring_all_reduce,
        {
            (
                "if step < n - 1:\n    part += received\nelse:\n    part.copy_(received)"
            ): "part += received"
        },
    ),
    "left-over": _ring_rounding_down,
    "no-wait": _ring_without_wait,
    "collective": _ring_by_collective,
    "not-in-place": _ring_of_a_copy,
    "divided": _ring_averaging,
    "some-ranks": _ring_to_the_last,
}
