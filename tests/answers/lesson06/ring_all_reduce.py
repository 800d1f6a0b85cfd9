"""Known answers to 06.ring_all_reduce."""

import math

import torch
from torch.nn import functional as F

from course_lessons.lesson06.ring_all_reduce import ring_all_reduce
from course_lessons.shared.edited import edited


def ring_by_rank_0(x, dist):
    """Let rank 0 collect and return whole tensors."""
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


def ring_averaging(x, dist):
    """Return the mean in place of the sum."""
    ring_all_reduce(x, dist)
    x.copy_(x / dist.get_world_size())


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


def _ring_by_irecv(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    flat = x.flatten()
    length = math.ceil(len(flat) / n)
    padded = F.pad(flat, (0, n * length - len(flat)))
    parts = list(padded.split(length))
    for step in range(n - 1):
        parts[(rank + step + 1) % n] += _exchange_with_neighbours(parts[(rank + step) % n], dist)
    for step in range(n - 1):
        parts[(rank + step) % n].copy_(_exchange_with_neighbours(parts[(rank + step - 1) % n], dist))
    x.copy_(padded[: len(flat)].view_as(x))


def _exchange_with_neighbours(part, dist):
    """Send a part to the rank before; return the part that the rank after sends."""
    n, rank = dist.get_world_size(), dist.get_rank()
    received = torch.empty_like(part)
    works = [dist.irecv(received, (rank + 1) % n), dist.isend(part, (rank - 1) % n)]
    for work in works:
        work.wait()
    return received


def _ring_of_direct_messages(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts, received = x.view(-1).tensor_split(n), []
    for step in range(1, n):
        sending = dist.isend(parts[(rank + step) % n], (rank + step) % n)
        received.append(torch.empty_like(parts[rank]))
        dist.recv(received[-1], (rank - step) % n)
        sending.wait()
    for part in received:
        parts[rank].add_(part)
    for step in range(1, n):
        sending = dist.isend(parts[rank], (rank + step) % n)
        dist.recv(parts[(rank - step) % n], (rank - step) % n)
        sending.wait()


def _swapped_ring(x, dist):
    n, rank = dist.get_world_size(), dist.get_rank()
    parts = x.view(-1).tensor_split(n)
    for step in range(2 * (n - 1)):
        part = parts[(rank - step - 1) % n]
        received = torch.empty_like(part)
        works = [
            dist.isend(parts[(rank - step) % n], (rank + 1) % n),
            dist.irecv(received, (rank - 1) % n),
        ]
        for work in works:
            work.wait()
        if step < n - 1:
            part += received
        else:
            part.copy_(received)


_WAITS = "for work in works:\n    work.wait()"
_ADD = "if step < n - 1:\n    part += received\nelse:\n    part.copy_(received)"
WRONG = {
    "deadlock": {"sending = dist.isend": "dist.send", "sending.wait()": ""},
    "whole-tensors": ring_by_rank_0,
    "too-many-steps": _ring_taking_turns,
    "half-way": {"2 * (n - 1)": "n - 1", _ADD: "part += received"},
    "no-wait": (
        {"sending = dist.isend": "dist.isend", "sending.wait()": ""},
        {"empty_like": "zeros_like", "dist.recv": "dist.irecv"},
        edited(_swapped_ring, {_WAITS: _ADD, _ADD: _WAITS}),
    ),
    "wrong-value": ring_averaging,
}
RIGHT = {
    "both begun": _swapped_ring,
    "by irecv": _ring_by_irecv,
    "of direct messages": _ring_of_direct_messages,
}
