"""What the simulated device pretends to be: a GPU's figures, each with its source.

``profiles.json`` holds the figures and says where each comes from; this file only reads it. All
figures are in SI units: bytes, seconds, floating-point operations a second, hertz, watts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_FILE = Path(__file__).with_name("profiles.json")
_SPREAD = Path(__file__).with_name("spread.json")


@dataclass(frozen=True)
class Shared:
    """What all cards have in common in the model of `latency`; every figure with its source.

    Attributes
    ----------
    tile_half_tensor
        As `Profile.tile_half`, of tensor cores.
    prologue_epilogue_k_simt, prologue_epilogue_k_tensor
        Steps of depth that starting and ending a tile costs, on ordinary and on tensor cores.
    resident
        Elements of the result that a processor must have in work at once to be busy.
    split_k_simt, split_k_tensor
        Seconds that adding the parts of a split depth costs beside their bytes.
    cache_gain
        How many times as fast as from memory a tensor is read that is small against the cache.
    softmax_share, reduce_share, depthwise_share
    product_share_simt, product_share_tensor
        Of the rate of bytes that operations on elements reach: what softmax reaches, sums, norms and
        looking up, convolutions of single channels, and products by the cores that compute them.
    softmax_pace, reduce_pace, gather_pace
        Elements a clock that a processor does at most: softmax, sums and norms, looking up.
    strided_pace
        The same, of operations on elements whose tensors lie differently: one is expanded, or turned.
    unaligned_pace
        FLOP a clock of a processor's tensor cores in products whose rows begin between their loads.
    layout_pace, layout_share
        Elements a clock, of tiles of 32 channels by 32 places whether full or not, that a processor turns round at most
        for a convolution; and the share of the rate of bytes that this reaches.
    row_floor
        Seconds that these take more than any kernel takes.
    attention_share
        Of the rate that large products reach: what fused attention reaches.
    prologue_epilogue_k_winograd, winograd_transform
        Steps of depth that starting a block of Winograd's kernels costs, and the share of the rate of
        bytes that his transforms reach.
    """

    tile_half_tensor: float
    prologue_epilogue_k_simt: float
    prologue_epilogue_k_tensor: float
    resident: float
    split_k_simt: float
    split_k_tensor: float
    cache_gain: float
    softmax_share: float
    reduce_share: float
    product_share_simt: float
    product_share_tensor: float
    softmax_pace: float
    reduce_pace: float
    gather_pace: float
    strided_pace: float
    unaligned_pace: float
    layout_pace: float
    layout_share: float
    row_floor: float
    depthwise_share: float
    attention_share: float
    prologue_epilogue_k_winograd: float
    winograd_transform: float
    sources: dict[str, str] = field(repr=False, compare=False)


@cache
def shared() -> Shared:
    """Return the figures that all cards share."""
    figures = _read("shared")
    values = {key: figure["value"] for key, figure in figures.items()}
    return Shared(sources={key: f["source"] for key, f in figures.items()}, **values)


@dataclass(frozen=True)
class Profile:
    """One GPU as the cost model and the clock see it.

    Peak rates are the maker's; ``*_efficiency`` says which share of them large work reaches.

    Attributes
    ----------
    key, name
        The name to ask for (``"T4"``) and the full name.
    capability
        The CUDA compute capability that ``get_device_capability`` reports.
    total_memory
        Bytes a program sees.
    processors
        Streaming multiprocessors.
    clock
        Of the processors when they boost, as the card is sold, in hertz. Cards may run faster for a
        while, and slower where ``power`` stops them.
    l2
        The cache between the processors and the memory, in bytes.
    shared_memory
        Of each processor, for the threads of a block, in bytes.
    power
        What the board may draw, in watts.
    fp32_flops, fp64_flops
        FLOP/s of a float32 and of a float64 matrix product without TF32.
    tf32_flops, fp16_flops, bf16_flops
        FLOP/s of the tensor cores, without sparsity, summed in float32; None where they lack the format.
    bf16_emulated_flops
        FLOP/s that a bfloat16 matrix product reaches where the tensor cores lack the format, or None.
    bandwidth
        Of the device's memory, bytes/s.
    bus_pinned, bus_pageable
        Between the host and the device, bytes/s, from pinned and from ordinary host memory.
    pinning
        How fast ``tensor.pin_memory()`` makes a pinned copy, bytes/s.
    peer
        To another device of the same machine, bytes/s.
    launch
        Host time of the call that launches a kernel, in seconds; see `host` for the rest.
    host
        How many times as long as the reference host its usual host takes; see `host`.
    collective
        Bytes/s that large collectives move over each card's link, the "bus bandwidth" of NCCL's
        tests.
    collective_latency
        Of a collective, in seconds.
    kernel_floor
        Time every kernel takes on the device before its size matters, in seconds.
    copy_latency
        The same as ``kernel_floor`` for a copy across the bus, in seconds.
    sync_cost
        Host time that waiting for the device costs when nothing is left to wait for, in seconds.
    vector_efficiency, tensor_efficiency, memory_efficiency
        Share of the peak that large work reaches: ordinary cores in tiles of 128 x 128, tensor cores
        in tiles of 256 x 128, memory in operations on elements one by one.
    tile_half
        How many columns and rows a tile has, by their harmonic mean's half, at which a processor
        reaches half of what it reaches in a tile without end, on ordinary cores (see `latency`).
    convolution_share, winograd_share
        Of the rate of a product in float32: what a convolution reaches that unfolds its input as it
        goes, and what the products of Winograd's ways reach.
    throttle_after, throttle_rise, throttle_most
        A kernel that computes for longer than the first (seconds) runs into the card's power limit:
        it takes longer by its time over that one to the power of the second, at most by the third.
    sources
        For each figure, where it is published, or the assumption it rests on.
    shared
        What all cards have in common.
    rates
        FLOP/s that large work reaches, by unit (see `cost.Work`); worked out from the figures above,
        under the power limit where there is one.
    memory_rate
        Bytes/s that large work reaches.
    """

    key: str
    name: str
    capability: tuple[int, int]
    total_memory: int
    processors: int
    clock: float
    l2: int
    shared_memory: int
    power: float
    fp32_flops: float
    tf32_flops: float | None
    fp16_flops: float
    bf16_flops: float | None
    bf16_emulated_flops: float | None
    fp64_flops: float
    bandwidth: float
    bus_pinned: float
    bus_pageable: float
    pinning: float
    peer: float
    launch: float
    host: float
    collective: float
    collective_latency: float
    kernel_floor: float
    copy_latency: float
    sync_cost: float
    vector_efficiency: float
    tensor_efficiency: float
    memory_efficiency: float
    tile_half: float
    convolution_share: float
    winograd_share: float
    throttle_after: float
    throttle_rise: float
    throttle_most: float
    sources: dict[str, str] = field(repr=False, compare=False)
    shared: Shared = field(repr=False)
    rates: dict[str, float] = field(init=False, repr=False, compare=False)
    memory_rate: float = field(init=False, repr=False, compare=False)
    latency_cache: dict[Any, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        fp32 = self.fp32_flops * self.vector_efficiency / self.throttle_most
        tensor = self.tensor_efficiency
        rates = {
            "fp32": fp32,
            "tf32": self.tf32_flops * tensor if self.tf32_flops else fp32,
            "fp16": self.fp16_flops * tensor,
            "bf16": self.bf16_flops * tensor if self.bf16_flops else self.bf16_emulated_flops,
            "fp64": self.fp64_flops * self.vector_efficiency / self.throttle_most,
        }
        object.__setattr__(self, "rates", rates)
        object.__setattr__(self, "memory_rate", self.bandwidth * self.memory_efficiency)
        object.__setattr__(self, "latency_cache", {})

    def emulates(self, unit: str) -> bool:
        """Whether its tensor cores lack the unit's format, so that ordinary cores compute."""
        lacks = {"bf16": self.bf16_flops, "tf32": self.tf32_flops}
        return lacks.get(unit, True) is None

    def throttled(self, seconds: float) -> float:
        """Return how long a kernel takes under the card's power limit that computes so long without."""
        if seconds <= self.throttle_after:
            return seconds
        return seconds * min(
            (seconds / self.throttle_after) ** self.throttle_rise, self.throttle_most
        )


def names() -> tuple[str, ...]:
    """Return the names that ``load`` knows."""
    return tuple(_read("profiles"))


def load(name: str) -> Profile:
    """Return a profile by its name; capitals and spaces do not matter (``"rtx4090"``).

    Raises
    ------
    ValueError
        Where there is none of that name.
    """
    key = next((known for known in names() if _normalized(known) == _normalized(name)), None)
    if key is None:
        raise ValueError(f"There is no profile {name!r}. Choose one of {', '.join(names())}.")
    return _load(key)


class Spread(NamedTuple):
    """How many times as long as modelled real work took: in eight of ten cases from ``low`` to ``high``.

    ``n`` measurements on ``card`` say so (``"all"``: on all cards), of ``work``: ``"operator"`` or ``"network"``.
    """

    low: float
    high: float
    n: int
    card: str
    work: str


def spread(machine: str, single: bool = False) -> Spread:
    """Return how far real times lie from modelled ones, for a card by its key or its (simulated) name.

    Parameters
    ----------
    machine
        A card of which too little is known, or an unknown one, has the figures of all cards.
    single
        Whether one kernel or one copy was timed, and not a step of a network or the like.
    """
    work = "operator" if single else "network"
    known = _ranges()
    matches = [key for key in names() if machine == key or load(key).name in machine]
    card = next((key for key in matches if work in known.get(key, ())), "all")
    found = known[card][work]
    return Spread(min(found["low"], 1.0), max(found["high"], 1.0), found["n"], card, work)


@cache
def _ranges() -> dict[str, dict[str, dict[str, Any]]]:
    return json.loads(_SPREAD.read_text(encoding="utf-8"))["cards"]


def _normalized(name: object) -> str:
    return "".join(str(name).split()).casefold()


@cache
def _load(key: str) -> Profile:
    entry = _read("profiles")[key]
    figures = entry["figures"]
    return Profile(
        key=key,
        name=entry["name"],
        capability=tuple(entry["capability"]),
        sources={name: figure["source"] for name, figure in figures.items()},
        shared=shared(),
        **{name: figure["value"] for name, figure in figures.items()},
    )


@cache
def _read(part: str) -> dict[str, Any]:
    return json.loads(_FILE.read_text(encoding="utf-8"))[part]
