"""A simulated cluster: ranks as threads that take turns, messages on a virtual clock.

A program for ``torch.distributed`` runs here without processes and without a network. What it computes
is real; how long it takes is **modelled**, and every run of it is the same.

How it goes: one rank runs at a time, always the lowest that can, until it has to wait. When all wait,
the message that can begin first begins. Where no message can, it is a deadlock, and that is said at once.

The model of time, in full:

- A rank has one link out and one link in, and each carries one message at a time.
- A message begins when both sides are there and both links are free, and takes
  latency + bytes / bandwidth. So ``send`` waits until the message is received.
- A collective begins when every rank has called it, and ends for all at the same moment. How long it
  takes, ``scheduler.schedule`` says; with a ``profile``, `collective_seconds`, held against real cards.
- Computing takes no time, but for what `compute` says.

Left out: what sends and receives the messages, links that share a switch, and links of unlike speed.

``ranks.py`` is what a rank's program sees, ``scheduler.py`` whose turn it is and what takes time,
``collectives.py`` what each rank gets and how long real cards take, and ``ddp.py`` DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import profiles
from .collectives import collective_seconds
from .ddp import DistributedDataParallel
from .ranks import Dist, Span, Work
from .scheduler import Cluster, Deadlock, Mismatch, Run

__all__ = [
    "Deadlock",
    "Dist",
    "DistributedDataParallel",
    "Mismatch",
    "Run",
    "Span",
    "Work",
    "collective_seconds",
    "compute",
    "marked",
    "run",
]

MARK = 16.0
"""Every place of rank r's `marked` tensor holds this to the power of r."""


def run(
    program: Callable[..., Any],
    ranks: int = 4,
    latency: float = 5e-6,
    bandwidth: float = 12e9,
    arguments: Sequence[Any] = (),
    limit: float = 30.0,
    profile: str | None = None,
) -> Run:
    """Run a program once on each rank of a simulated cluster.

    Parameters
    ----------
    program
        Called as ``program(dist, *arguments)``; ``dist`` stands for ``torch.distributed``.
    ranks
        How many, from 1 to 128.
    latency
        Of a message, in seconds.
    bandwidth
        Of a link, in bytes per second and direction.
    arguments
        Handed to the program; each rank gets a copy of its own, as a process would.
    limit
        The longest it may really take, in seconds.
    profile
        The cards, such as ``"A100"``, of one machine: then messages and collectives take what
        `collective_seconds` says, and ``latency`` and ``bandwidth`` count for nothing.

    Raises
    ------
    Deadlock
        Where no rank can go on.
    Mismatch
        Where ranks call different collectives, or with different shapes or dtypes.
    TimeoutError
        Where it takes longer than ``limit``.
    ValueError
        Where an argument is wrong, or ranks share a tensor.
    Exception
        What the program raises on the first rank that raises.
    """
    __tracebackhide__ = True  # of what a learner sees, their own lines should be left
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= 128:
        raise ValueError(f"ranks={ranks!r}: give a whole number from 1 to 128.")
    if not latency >= 0:
        raise ValueError(f"latency={latency!r}: give seconds, 0 or more.")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth={bandwidth!r}: give bytes per second, more than 0.")
    card = None if profile is None else profiles.load(profile)
    return Cluster(program, ranks, latency, bandwidth, arguments, card).run(limit)


def compute(dist: Dist, seconds: float, name: str = "compute") -> None:
    """Let a rank compute for so long on the virtual clock.

    Raises
    ------
    ValueError
        Where ``seconds`` is negative.
    """
    if not seconds >= 0:
        raise ValueError(f"A rank cannot compute for {seconds} s: give a time of 0 or more.")
    dist._add_span(name, "compute", dist._now, dist._now + seconds)
    dist._now += seconds


def marked(dist: Dist, size: int) -> Tensor:
    """Return a tensor whose values say whose numbers have been added up in it, and watch it.

    Every place of rank r's holds 16 ** r; so in a sum, the digit r in base 16 says how often rank r's
    number is in it. `Run.marks` keeps how it changed, for ``drawings.chunks``.

    Parameters
    ----------
    dist
        Of the rank; there can be at most 13 ranks, for the sums to be exact.
    size
        How many places.
    """
    if dist.get_world_size() > 13:
        raise ValueError("Marks are exact for at most 13 ranks.")
    dist._mark = torch.full((size,), MARK ** dist.get_rank(), dtype=torch.float64)
    dist._record_mark()
    return dist._mark
