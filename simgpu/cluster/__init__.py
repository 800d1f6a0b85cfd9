"""A simulated cluster: ranks are threads that run one at a time, messages take virtual time.

A program for ``torch.distributed`` runs here without processes and without a network. Its results are
real; its time is **modelled**, and every run is the same.

The scheduler runs one rank at a time, always the lowest that can run, until it has to wait. When all wait,
the message that can start first starts. If no message can, it is a deadlock, and raised at once.

The model of time, in full:

- A rank has one link out and one link in, and each carries one message at a time.
- A message starts when both sides have called and both links are free, and takes
  latency + bytes / bandwidth. So ``send`` waits until the message is received.
- A collective starts when every rank has called it, and ends for all at the same time. Its duration is
  that of ``scheduler.schedule``; with a ``profile``, `collective_seconds`, fitted to real cards.
- Computing takes no time, except by `compute`.

Left out: the work of sending and receiving, links that share a switch, and links of different speeds.

``ranks.py`` has the interface of a rank's program, ``scheduler.py`` the scheduler and its virtual time,
``collectives.py`` the results of collectives and their time on real cards, ``ddp.py``
DistributedDataParallel.
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
"""Every element of rank r's `marked` tensor is this to the power of r."""


def run(
    program: Callable[..., Any],
    ranks: int = 4,
    latency: float = 5e-6,
    bandwidth: float = 12e9,
    arguments: Sequence[Any] = (),
    limit: float = 30.0,
    profile: str | None = None,
) -> Run:
    """Run a program on every rank of a simulated cluster; return its results and modelled cost.

    Parameters
    ----------
    program
        Called as ``program(dist, *arguments)``; ``dist`` is a `Dist`, in place of ``torch.distributed``.
    ranks
        The number of ranks, 1 to 128.
    latency
        Of a message, in seconds.
    bandwidth
        Of a link, in bytes per second and direction.
    arguments
        Further arguments of the program; each rank gets a deep copy, as a process would.
    limit
        The timeout of the run in seconds of real time.
    profile
        The type of card, such as ``"A100"``, all in one machine: then messages and collectives take
        `collective_seconds`, and ``latency`` and ``bandwidth`` are ignored.

    Raises
    ------
    Deadlock
        If no rank can continue.
    Mismatch
        If ranks call different collectives, or with different shapes or dtypes.
    TimeoutError
        If it takes longer than ``limit``.
    ValueError
        If an argument is invalid, or ranks share a tensor.
    Exception
        The first exception that the program raises on a rank.
    """
    __tracebackhide__ = True  # a learner's traceback shows only their own lines
    if isinstance(ranks, bool) or not isinstance(ranks, int) or not 1 <= ranks <= 128:
        raise ValueError(f"ranks={ranks!r}: give a whole number from 1 to 128.")
    if not latency >= 0:
        raise ValueError(f"latency={latency!r}: give seconds, 0 or more.")
    if not bandwidth > 0:
        raise ValueError(f"bandwidth={bandwidth!r}: give bytes per second, more than 0.")
    card = None if profile is None else profiles.load(profile)
    return Cluster(program, ranks, latency, bandwidth, arguments, card).run(limit)


def compute(dist: Dist, seconds: float, name: str = "compute") -> None:
    """Advance a rank's virtual clock by ``seconds`` of computing, recorded as a span ``name``.

    Raises
    ------
    ValueError
        If ``seconds`` is negative.
    """
    if not seconds >= 0:
        raise ValueError(f"A rank cannot compute for {seconds} s: give a time of 0 or more.")
    dist._add_span(name, "compute", dist._now, dist._now + seconds)
    dist._now += seconds


def marked(dist: Dist, size: int) -> Tensor:
    """Return a float64 tensor that encodes which ranks' values are summed in it; record its changes.

    Every element on rank r is 16 ** r; so in a sum, digit r in base 16 is how often rank r's value is in it.
    `Run.marks` has its history, for ``drawings.chunks``.

    Parameters
    ----------
    dist
        The rank's; at most 13 ranks, so that sums are exact.
    size
        The number of elements.

    Raises
    ------
    ValueError
        If there are more than 13 ranks.
    """
    if dist.get_world_size() > 13:
        raise ValueError("Marks are exact for at most 13 ranks.")
    dist._mark = torch.full((size,), MARK ** dist.get_rank(), dtype=torch.float64)
    dist._record_mark()
    return dist._mark
