"""Collectives: the results for each rank, and the modelled time among real cards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..profiles import Profile

Combine = Callable[[Sequence[Tensor]], Sequence[Sequence[Tensor]]]
"""Takes the ranks' input tensors, returns each rank's received tensors."""

_REDUCE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "AVG": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}


def reduction(op: Any) -> Callable[[Sequence[Tensor]], Tensor]:
    """Return the function that reduces the ranks' tensors by a ``ReduceOp``.

    Raises
    ------
    ValueError
        If the operation is not supported.
    """
    name = getattr(op, "name", None)
    if name not in _REDUCE:
        raise ValueError(f"The simulated cluster reduces by {', '.join(_REDUCE)}, not by {op!r}.")

    def reduce(tensors: Sequence[Tensor]) -> Tensor:
        total = functools.reduce(_REDUCE[name], tensors)
        return total / len(tensors) if name == "AVG" else total

    return reduce


def same_for_all(make_result: Callable[[Sequence[Tensor]], Tensor]) -> Combine:
    """Return the `Combine` that gives every rank the tensor ``make_result(tensors)``."""
    return lambda tensors: [[make_result(tensors)]] * len(tensors)


def scatter_parts(make_result: Callable[[Sequence[Tensor]], Tensor]) -> Combine:
    """Return the `Combine` that gives rank r the r-th part of the flattened ``make_result(tensors)``."""
    return lambda tensors: [[part] for part in make_result(tensors).flatten().tensor_split(len(tensors))]


def gather_all(tensors: Sequence[Tensor]) -> Sequence[Sequence[Tensor]]:
    """Return the list of all tensors for every rank; a `Combine`."""
    return [tensors] * len(tensors)


def give_nothing(tensors: Sequence[Tensor]) -> Sequence[Sequence[Tensor]]:
    """Return no tensor for any rank; a `Combine`."""
    return [()] * len(tensors)


# --- Time

WARM_UP = 2.0
"""For how many times its latency a collective moves its bytes at half the rate.

Fitted to every second of 132 all_reduces among A100s, H100s and H200s, over NVLink and over PCI Express
(nccl-tests in Azure/AI-benchmarking-guide, and microsoft/vidur, both on GitHub)."""

_SHARES = {  # bytes that each rank moves over its link, as a share of ``nbytes``
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
    "gather": lambda n: (n - 1) / n,
    "barrier": lambda n: 0.0,
}
KINDS = (*_SHARES, "send_recv")
"""The kinds that `collective_seconds` knows."""


def collective_seconds(kind: str, nbytes: float, ranks: int, profile: Profile) -> float:
    """Return the modelled seconds of a collective among the cards of one machine.

    A latency, and the bytes that cross each card's link at the rate that large ones reach; the first
    of them at half that rate. The latency does not depend on the ranks: among 2, 4 and 8
    cards of one machine no difference was seen.

    Parameters
    ----------
    kind
        One of `KINDS`; also with PyTorch's endings, such as ``"all_gather_into_tensor"``.
    nbytes
        The bytes of the whole data: a rank's tensor for ``all_reduce``, all ranks' tensors together for
        ``all_gather`` and ``gather``, a rank's input for ``reduce_scatter``.
    ranks
        The number of cards.
    profile
        The card.

    Raises
    ------
    ValueError
        If the kind is unknown, there is no rank, or the size is negative.
    """
    kind = kind.removesuffix("_into_tensor").removesuffix("_tensor")
    if kind not in KINDS:
        raise ValueError(f"There is no collective {kind!r}; known are {', '.join(KINDS)}.")
    if ranks < 1 or nbytes < 0:
        raise ValueError(f"{nbytes} bytes among {ranks} ranks: give 0 or more among 1 or more.")
    if ranks == 1:
        return 0.0
    if kind == "send_recv":
        return profile.copy_latency + nbytes / profile.peer
    moving = _SHARES[kind](ranks) * nbytes / (profile.collective or profile.peer)
    latency = profile.collective_latency
    return latency + moving + min(moving, WARM_UP * latency)
